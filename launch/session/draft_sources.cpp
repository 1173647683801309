#include "launch/session/draft_sources.hpp"

#include <memory>
#include <utility>

#include "actors/draft/datastore_source.hpp"
#include "actors/draft/jacobi_source.hpp"
#include "actors/draft/lookahead_source.hpp"
#include "actors/draft/prompt_lookup_source.hpp"
#include "actors/draft/sources_in_turn.hpp"

namespace paceline {
namespace {

Result<DraftSourceFactory> lookup_source(const DraftConfig& config) {
    const NgramRange range{config.min_ngram, config.max_ngram};
    if (const Result<PromptLookup> lookup = PromptLookup::make(range); !lookup)
        return lookup.error();
    return DraftSourceFactory{[range](const Request&) {
        return std::make_unique<PromptLookupSource>(PromptLookup::make(range).value());
    }};
}

Result<DraftSourceFactory> store_source(const DraftConfig& config, const TokenizerData& tokenizer) {
    Result<Datastore> opened = Datastore::open(config.datastore, tokenizer);
    if (!opened) {
        const Error& why = opened.error();
        return Error{why.code, "[draft] datastore = \"" + config.datastore + "\": " + why.what};
    }
    StoreOptions options = config.store;
    options.min_ngram = config.min_ngram;
    options.max_ngram = config.max_ngram;
    auto store = std::make_shared<const Datastore>(std::move(opened).value());
    return DraftSourceFactory{[store, options](const Request&) {
        return std::make_unique<DatastoreSource>(store, options);
    }};
}

Result<DraftSourceFactory> guess_source(const DraftConfig& config, const TokenizerData& tokenizer) {
    switch (config.guess) {
        case DraftGuess::None:
        case DraftGuess::Phrases:  // around the model: DraftTools::phrases
            break;
        case DraftGuess::Jacobi:
            return DraftSourceFactory{[guesses = config.growth.gamma](const Request&) {
                return std::make_unique<JacobiSource>(guesses);
            }};
        case DraftGuess::Lookahead:
            if (const Status valid = validate(config.lookahead); !valid) return valid.error();
            return DraftSourceFactory{[options = config.lookahead](const Request&) {
                return std::make_unique<LookaheadSource>(options);
            }};
        case DraftGuess::Datastore:
            return store_source(config, tokenizer);
    }
    return DraftSourceFactory{};
}

}  // namespace

Result<DraftSourceFactory> draft_source(const DraftConfig& config, const TokenizerData& tokenizer) {
    Result<DraftSourceFactory> guess = guess_source(config, tokenizer);
    if (!guess || !config.lookup) return guess;
    Result<DraftSourceFactory> lookup = lookup_source(config);
    if (!lookup || !guess.value()) return lookup;
    return DraftSourceFactory{[first = std::move(lookup).value(),
                               second = std::move(guess).value()](const Request& request) {
        return std::make_unique<SourcesInTurn>(first(request), second(request));
    }};
}

}  // namespace paceline

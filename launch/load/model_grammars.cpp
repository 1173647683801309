#include "launch/load/model_grammars.hpp"

#include <mutex>
#include <utility>

#include "launch/load/load_model.hpp"
#include "launch/load/model_use.hpp"

namespace paceline {
namespace {

class LazyLoader final : public GrammarLoader {
public:
    explicit LazyLoader(std::function<Result<GrammarVocabulary>()> vocabulary)
        : vocabulary_{std::move(vocabulary)} {}

    Result<std::unique_ptr<GrammarMatcher>> match(const CompiledGrammarPtr& grammar,
                                                  std::span<const TokenId> end_tokens) override {
        if (Status made = make(); !made) return made.error();
        return loader_->match(grammar, end_tokens);
    }

private:
    Status make() {
        const std::lock_guard lock{mutex_};
        if (loader_ != nullptr) return {};
        Result<GrammarVocabulary> vocabulary = vocabulary_();
        if (!vocabulary) return vocabulary.error();
        loader_ = make_grammar_loader(std::move(vocabulary).value());
        return {};
    }

    std::function<Result<GrammarVocabulary>()> vocabulary_;
    std::mutex mutex_;
    std::unique_ptr<GrammarLoader> loader_;  // set once
};

}  // namespace

Result<GrammarVocabulary> grammar_vocabulary_of(const ModelFile& file) {
    const Result<Tokenizer> tokenizer = tokenizer_of(file);
    if (!tokenizer) return tokenizer.error();
    return grammar_vocabulary(tokenizer.value(),
                              static_cast<std::size_t>(file.config().vocab_size));
}

std::shared_ptr<GrammarLoader> lazy_grammar_loader(
    std::function<Result<GrammarVocabulary>()> vocabulary) {
    return std::make_shared<LazyLoader>(std::move(vocabulary));
}

std::shared_ptr<GrammarLoader> lazy_grammar_loader(const ModelOptions& model) {
    return lazy_grammar_loader([model]() -> Result<GrammarVocabulary> {
        const Result<ModelFile> file = open_named_model(model);
        if (!file) return file.error();
        return grammar_vocabulary_of(file.value());
    });
}

}  // namespace paceline

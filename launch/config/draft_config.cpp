#include "launch/config/draft_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>

#include "actors/decoding/guesses/prompt_lookup.hpp"
#include "actors/decoding/stop_policy.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"
#include "launch/config/field.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {
namespace {

constexpr int kAlternativesMax = 8;
constexpr int kLevelWidthMax = 16;  // of EAGLE-2's tree: its square is added at each level
constexpr int kLayersMax = 1'000'000;

struct Source {
    std::string_view word;
    bool lookup;
    DraftModelKind model;
    DraftGuess guess = DraftGuess::None;
};
/// The first kStandIns need no other file than the target's: they may stand in for a trained draft.
constexpr std::array kSources{
    Source{"prompt-lookup", true, DraftModelKind::None},
    Source{"first-layers", false, DraftModelKind::FirstLayers},
    Source{"prompt-lookup+first-layers", true, DraftModelKind::FirstLayers},
    Source{"skip-layers", false, DraftModelKind::SkipLayers},
    Source{"prompt-lookup+skip-layers", true, DraftModelKind::SkipLayers},
    Source{"trained", false, DraftModelKind::Trained},
    Source{"prompt-lookup+trained", true, DraftModelKind::Trained},
    Source{"eagle", false, DraftModelKind::Eagle},
    Source{"prompt-lookup+eagle", true, DraftModelKind::Eagle},
    Source{"model", false, DraftModelKind::File},
    Source{"prompt-lookup+model", true, DraftModelKind::File},
    Source{"jacobi", false, DraftModelKind::None, DraftGuess::Jacobi},
    Source{"prompt-lookup+jacobi", true, DraftModelKind::None, DraftGuess::Jacobi},
    Source{"lookahead", false, DraftModelKind::None, DraftGuess::Lookahead},
    Source{"prompt-lookup+lookahead", true, DraftModelKind::None, DraftGuess::Lookahead},
    Source{"lookahead+first-layers", false, DraftModelKind::FirstLayers, DraftGuess::Lookahead},
    Source{"lookahead+skip-layers", false, DraftModelKind::SkipLayers, DraftGuess::Lookahead},
    Source{"lookahead+trained", false, DraftModelKind::Trained, DraftGuess::Lookahead},
    Source{"lookahead+model", false, DraftModelKind::File, DraftGuess::Lookahead},
    Source{"datastore", false, DraftModelKind::None, DraftGuess::Datastore},
    Source{"prompt-lookup+datastore", true, DraftModelKind::None, DraftGuess::Datastore},
    Source{"datastore+first-layers", false, DraftModelKind::FirstLayers, DraftGuess::Datastore},
    Source{"datastore+skip-layers", false, DraftModelKind::SkipLayers, DraftGuess::Datastore},
    Source{"datastore+trained", false, DraftModelKind::Trained, DraftGuess::Datastore},
    Source{"datastore+model", false, DraftModelKind::File, DraftGuess::Datastore},
    Source{"phrases+first-layers", false, DraftModelKind::FirstLayers, DraftGuess::Phrases},
    Source{"phrases+skip-layers", false, DraftModelKind::SkipLayers, DraftGuess::Phrases},
    Source{"phrases+trained", false, DraftModelKind::Trained, DraftGuess::Phrases},
    Source{"phrases+model", false, DraftModelKind::File, DraftGuess::Phrases},
};
constexpr std::size_t kStandIns = 5;

std::size_t source_index(bool lookup, DraftModelKind model, DraftGuess guess) {
    const auto* const found =
        std::find_if(kSources.begin(), kSources.end(), [&](const Source& source) {
            return source.lookup == lookup && source.model == model && source.guess == guess;
        });
    PACE_CHECK(found != kSources.end(), "a draft has a source");
    return static_cast<std::size_t>(found - kSources.begin());
}

/// The first `count` sources. `guess` may be nullptr where none of them has one.
WordField source_field(bool& lookup, DraftModelKind& model, DraftGuess* guess, std::size_t count) {
    WordField field{.words = {},
                    .get =
                        [&lookup, &model, guess] {
                            return source_index(lookup, model,
                                                guess == nullptr ? DraftGuess::None : *guess);
                        },
                    .set =
                        [&lookup, &model, guess](std::size_t index) {
                            lookup = kSources[index].lookup;
                            model = kSources[index].model;
                            if (guess != nullptr) *guess = kSources[index].guess;
                        }};
    for (std::size_t i = 0; i < count; ++i) field.words.push_back(kSources[i].word);
    return field;
}

/// Keys of one way to choose the skip set with another one.
Status check_choice(const TomlTable& table, const DraftConfig& draft) {
    const bool searches = draft.skip.choose == SkipChoice::Search;
    if (draft.skip.choose == SkipChoice::Fixed) {
        if (table.has("interval"))
            return table.error("interval", "is for choose = \"programme\" or \"search\"");
    } else if (!draft.whole_text) {
        return table.error("whole_text", searches ? "must be true with choose = \"search\""
                                                  : "must be true with choose = \"programme\"");
    }
    if (draft.skip.choose == SkipChoice::Programme && !draft.skip.uniform())
        return table.error("skip", "is found by choose = \"programme\"");
    if (!searches && table.has("optimise_share"))
        return table.error("optimise_share", "is for choose = \"search\"");
    return check_search(table, searches);
}

/// Keys of one source with another one. `size` and `stand_in` may stay where another source is put
/// in the place of "trained".
Status check_source(const TomlTable& table, const DraftConfig& draft) {
    const std::string source = "\"" + source_text(draft) + "\"";
    const auto refuse = [&](const char* key, const std::string& sources) {
        return table.error(key, "is for source" + sources + ", this is " + source);
    };
    if (!draft.is_part() && table.has("part"))
        return refuse("part", " = \"trained\" or \"eagle\", alone or with lookup");
    if (draft.model != DraftModelKind::File && table.has("model"))
        return refuse("model", " = \"model\" or \"prompt-lookup+model\"");
    if (draft.model == DraftModelKind::File && draft.model_file.empty())
        return table.error("model", "is missing: source = " + source + " needs a GGUF file");
    const bool may_stand_in =
        draft.is_part() && draft.stand_in.model == DraftModelKind::FirstLayers;
    if (draft.model != DraftModelKind::FirstLayers && !may_stand_in && table.has("layers"))
        return refuse("layers", " = \"first-layers\"");
    if (draft.model != DraftModelKind::SkipLayers &&
        draft.stand_in.model != DraftModelKind::SkipLayers) {
        for (const char* key : {"skip", "skip_ratio", "keep_first", "keep_last", "whole_text",
                                "choose", "interval"}) {
            if (table.has(key)) return refuse(key, " = \"skip-layers\"");
        }
    }
    if (Status s = check_choice(table, draft); !s.ok()) return s;
    if (Status s = check_skip(table, draft.skip); !s.ok()) return s;
    if (!draft.computes() && draft.short_list != 0) return refuse("short_list", "s with a model");
    if (draft.layers <= 0.0 || (draft.layers > 1.0 && draft.layers != std::floor(draft.layers)))
        return table.error("layers", "must be a number of layers, or a part of the depth below 1");
    if (!draft.computes() && draft.growth.own_alternatives > 0) {
        return table.error("own_alternatives",
                           "needs a model to name runners-up, source is " + source);
    }
    if (!draft.computes() && draft.growth.draws)
        return table.error("draws", "needs a model to draw from, source is " + source);
    return {};
}

/// EAGLE-2's tree: its own defaults are those of its authors.
Status finish_tree(const TomlTable& table, DraftConfig& draft) {
    GrowthRule& growth = draft.growth;
    if (growth.tree == GrowthTree::BestFirst) {
        if (growth.tree_nodes == GrowthRule{}.tree_nodes) return {};
        return table.error("tree_nodes", "is for tree = \"eagle2\"");
    }
    if (!draft.computes())
        return table.error(
            "tree", "needs a model to name runners-up, source is \"" + source_text(draft) + "\"");
    if (growth.pace != DraftPace::Sequential)
        return table.error("tree", "is for pace = \"sequential\"");
    if (growth.own_alternatives > 0)
        return table.error("own_alternatives", "must be 0 with tree = \"eagle2\": width says it");
    if (!table.has("gamma")) growth.gamma = 5;
    if (!table.has("width")) growth.width = 10;
    if (growth.width <= kLevelWidthMax) return {};
    return table.error("width",
                       fmt::format("must be at most {} with tree = \"eagle2\"", kLevelWidthMax));
}

/// Phrases are verified in rounds, below a chain whose length is not a matter of their tokens.
Status check_phrases(const TomlTable& table, const DraftConfig& draft) {
    const GrowthRule& growth = draft.growth;
    const std::string with = " with source = \"" + source_text(draft) + "\"";
    if (const Status valid = validate(draft.lookahead); !valid)
        return table.error("guess_window", "does not fit: " + valid.error().what);
    if (growth.pace != DraftPace::Sequential)
        return table.error("pace", "must be \"sequential\"" + with);
    if (growth.tree != GrowthTree::BestFirst)
        return table.error("tree", "must be \"best-first\"" + with);
    for (const auto& [key, is_set] :
         {std::pair{"adaptive", growth.adaptive}, std::pair{"thompson", growth.thompson},
          std::pair{"threshold_adapts", growth.threshold_adapts},
          std::pair{"draws", growth.draws}}) {
        if (is_set) return table.error(key, "must be false" + with);
    }
    return {};
}

/// Keys of guesses and datastore. With lookahead, the shape gives the length of chains.
Status finish_guess(const TomlTable& table, DraftConfig& draft) {
    const std::string source = "\"" + source_text(draft) + "\"";
    const bool phrases = draft.guess == DraftGuess::Phrases;
    if (draft.guess != DraftGuess::Lookahead && !phrases) {
        for (const char* key : {"guess_window", "ngram", "guesses", "pool_from_prompt"}) {
            if (table.has(key))
                return table.error(
                    key, "is for source = \"lookahead\" or \"phrases+...\", this is " + source);
        }
    }
    for (const char* key : {"phrases", "pool"}) {
        if (!phrases && table.has(key))
            return table.error(key, "is for source = \"phrases+...\", this is " + source);
    }
    if (draft.guess != DraftGuess::Datastore) {
        for (const char* key : {"datastore", "places", "continuation", "store_nodes"}) {
            if (table.has(key))
                return table.error(key, "is for source = \"datastore\", this is " + source);
        }
    }
    if (phrases) return check_phrases(table, draft);
    if (!draft.observes()) return {};
    for (const char* key : {"adaptive", "thompson"}) {
        const bool is_set =
            key == std::string_view{"adaptive"} ? draft.growth.adaptive : draft.growth.thompson;
        if (is_set)
            return table.error(key, "is for candidates that are right or not, this is " + source);
    }
    if (draft.guess == DraftGuess::Jacobi && draft.growth.confidence_min > 0.0F)
        return table.error("confidence_min", "is for sources that know it, this is " + source);
    if (draft.guess != DraftGuess::Lookahead) return {};
    if (const Status valid = validate(draft.lookahead); !valid)
        return table.error("guess_window", "does not fit: " + valid.error().what);
    if (draft.computes()) return {};
    if (!table.has("gamma")) draft.growth.gamma = draft.lookahead.depth();
    if (draft.growth.gamma >= draft.lookahead.depth()) return {};
    return table.error(
        "gamma",
        fmt::format("must be at least {} with guess_window = {} and ngram = {}",
                    draft.lookahead.depth(), draft.lookahead.window, draft.lookahead.ngram));
}

}  // namespace

int DraftConfig::layers_of(int of) const {
    const double wanted = layers < 1.0 ? layers * of : layers;
    return std::clamp(static_cast<int>(std::lround(wanted)), 1, of);
}

void DraftConfig::use_stand_in() {
    model = stand_in.model;
    // Beside other guesses lookup stands without a model only.
    lookup = stand_in.lookup && (guess == DraftGuess::None || !computes());
    model_file.clear();
    if (computes()) return;
    if (guess == DraftGuess::Phrases) {  // there is no model for them to be around
        guess = DraftGuess::None;
        lookup = true;
    }
    growth.own_alternatives = 0;  // runners-up need a model, and so does a distribution
    growth.tree = GrowthTree::BestFirst;
    growth.draws = false;
}

void DraftConfig::leave_out_datastore() {
    guess = DraftGuess::None;
    if (!lookup && !computes()) use_stand_in();
}

void DraftConfig::observe_nothing() {
    if (!observes()) return;
    guess = DraftGuess::None;
    lookup = lookup || !computes();
}

std::optional<PhraseOptions> DraftConfig::phrase_options() const {
    if (guess != DraftGuess::Phrases || !computes()) return std::nullopt;
    return PhraseOptions{.phrases = phrases, .lookahead = lookahead};
}

std::string source_text(const DraftConfig& draft) {
    return std::string{kSources[source_index(draft.lookup, draft.model, draft.guess)].word};
}

std::vector<Field> fields_of(DraftConfig& d) {
    GrowthRule& g = d.growth;
    const std::vector<Field> first = {
        {"source", source_field(d.lookup, d.model, &d.guess, kSources.size()),
         "where candidates come from: `prompt-lookup` (the text so far), the draft `trained` for "
         "the "
         "target, an `eagle` draft over the target's hidden states, the target's own "
         "`first-layers` with its head, a `model` (GGUF file), or lookup "
         "with one of them below it; guesses from the target's own tokens (`jacobi`, `lookahead`), "
         "or "
         "a `datastore` of other texts; `phrases` around a model (Ouroboros)"},
        {"size", word(d.size, {"small", "deep"}),
         "`trained`: `deep` is slower and better; where there is only one, that one"},
        {"part", TextField{&d.model_file}, "`trained`, `eagle`: its file", "found by fingerprint"},
        {"stand_in", source_field(d.stand_in.lookup, d.stand_in.model, nullptr, kStandIns),
         "`trained`: the model, or lookup, of a target without such a draft; `eagle`: likewise, "
         "where "
         "it is given; `datastore` alone: the source without a file"},
        {"model", TextField{&d.model_file},
         "`model`: a GGUF file, a Hugging Face folder or OWNER/NAME, with the target's vocabulary",
         "must be given"},
        {"layers", number(d.layers, 0, kLayersMax),
         "`first-layers`: how many; below 1: that part of the depth"},
    };
    const std::vector<Field> choice = {
        {"whole_text", &d.whole_text,
         "`skip-layers`: the text is read with all layers, candidates see the target's own keys; "
         "`false`: with those that are kept, which alone are in memory then"},
        {"choose", word(d.skip.choose, {"fixed", "programme", "search"}),
         "`skip-layers`: the set stays as it is, CLaSp's dynamic `programme` chooses whole layers, "
         "from what the target's layers made of the last accepted token, or SWIFT's `search` tries "
         "sets on committed tokens"},
        {"interval", number(d.skip.interval, 1, 1'000'000),
         "`programme`: verifications of a request between two choices; `search`: verdicts between "
         "two trials"},
        {"optimise_share", number(d.search.optimise_share, 0, 1),
         "`search`: trials take at most this share of the time of the draft's passes"},
    };
    const std::vector<Field> rest = {
        {"short_list", number(d.short_list, 0, kVocabularyMax),
         "`first-layers`, `model`: the head knows only the first N token ids; 0: all"},
        {"min_ngram", number(d.min_ngram, 1, kNgramMax),
         "lookup: length of the shortest run of tokens that is looked up"},
        {"max_ngram", number(d.max_ngram, 1, kNgramMax), "lookup: of the longest"},
        {"guess_window", number(d.lookahead.window, 1, kGammaMax),
         "`lookahead`: W, positions of the window; `phrases`: of that of the draft's own passes"},
        {"ngram", number(d.lookahead.ngram, 3, kNgramMax),
         "`lookahead`, `phrases`: N, tokens of the pool's n-grams; of `lookahead` the most that "
         "one "
         "round commits"},
        {"guesses", number(d.lookahead.guesses, 0, kVerifyRowsMax),
         "`lookahead`: G, n-grams proposed in a round, and kept for each first token; `phrases`: "
         "those that the draft tries in a pass"},
        {"pool_from_prompt", &d.lookahead.pool_from_prompt,
         "`lookahead`, `phrases`: the n-grams of prompt and answer are in the pool as well"},
        {"phrases", number(d.phrases, 0, kVerifyRowsMax),
         "`phrases`: K, n-grams of the pool that are proposed below the trunk's end"},
        {"pool", word(d.pool, {"request", "process"}),
         "`phrases`: each `request` has a pool of its own, or all requests of the draft's "
         "`process` "
         "share one: the speed of an answer then tells of the texts of others"},
        {"datastore", TextField{&d.datastore},
         "`datastore`: a file of `paceline datastore`, made with the target's tokenizer; without "
         "one it is left out, and `datastore` alone is `stand_in`",
         "none"},
        {"places", number(d.store.places, 1, kStorePlacesMax),
         "`datastore`: places that are counted; of more, as many at equal distances"},
        {"continuation", number(d.store.continuation, 1, kStoreContinuationMax),
         "`datastore`: tokens behind each place"},
        {"store_nodes", number(d.store.nodes, 1, kVerifyRowsMax - 1),
         "`datastore`: candidates in a round, the most frequent ones"},
        {"grammar", word(d.grammar, {"masked+forced", "masked", "off"}),
         "of answers with a grammar: `masked`: of lookup, guesses and datastore only candidates "
         "that "
         "it allows are proposed; `forced`: tokens that it forces are proposed before any "
         "candidate; `off`: candidates as they are, for studies. The text is the same"},
        {"pace", word(g.pace, {"sequential", "ahead", "lockstep"}),
         "`sequential`: waits for the verdict; `ahead`: continues below its candidates meanwhile; "
         "`lockstep`: rounds of `gamma` steps beside one verification"},
        {"gamma", number(g.gamma, 1, kGammaMax),
         "tokens on the trunk per turn or round; with `ahead` its greatest depth"},
        {"gamma_early", number(g.gamma_early, 0, kGammaMax),
         "`lockstep`: steps before the exit's alternatives are waited for; 0: no wait"},
        {"adaptive", &g.adaptive,
         "`sequential`: the length grows by 2 when all were accepted, else shrinks by 1"},
        {"thompson", &g.thompson,
         "`sequential`: the length is drawn: after each token the chain ends with probability 1 - "
         "theta, theta from a Beta distribution of accepted and rejected candidates (EESD); at "
         "most "
         "`gamma`"},
        {"thompson_decay", number(g.thompson_decay, 0, 1),
         "`thompson`: both counts are multiplied by this at each verdict; 1: nothing is forgotten"},
        {"confidence_min", number(g.confidence_min, 0, 1),
         "a chain ends after a token less probable than this"},
        {"threshold_adapts", &g.threshold_adapts,
         "the threshold moves until `acceptance_target` of the candidates are accepted, across "
         "requests (`reach_min` where it is 0.01 or more, else `confidence_min`)"},
        {"acceptance_target", number(g.acceptance_target, 0, 1), "`threshold_adapts`: the target"},
        {"tree", word(g.tree, {"best-first", "eagle2"}),
         "nodes that a pass expands: the `width` most probable ones, or with `eagle2` those of one "
         "level: `gamma` levels (default 5), `width` (default 10) nodes of each, as many children "
         "after each"},
        {"tree_nodes", number(g.tree_nodes, 1, kVerifyRowsMax - 1),
         "`eagle2`: candidates that are proposed, the most probable ones"},
        {"width", number(g.width, 1, kVerifyRowsMax), "nodes expanded in one pass of the model"},
        {"own_alternatives", number(g.own_alternatives, 0, kAlternativesMax),
         "runners-up of the draft's model after each node"},
        {"draws", &g.draws,
         "with `[acceptance] rule = \"rejection\"` and a temperature: the model draws its "
         "candidates, "
         "with `own_alternatives` that many more, instead of proposing its best ones"},
        {"draw_top", number(g.draw_top, 1, kDrawnSupportMax),
         "`draws`: candidates are drawn from the N most probable tokens"},
        {"exit_alternatives", number(g.exit_alternatives, 0, kAlternativesMax),
         "of the candidates that an exit sends at each row, how many are grown (FOLD's k)"},
        {"branch_budget", number(g.branch_budget, 0, kProposalNodesMax),
         "nodes off the trunk that are expanded per root"},
        {"reach_min", number(g.draft_reach_min, 0, 1),
         "a less probable path is not continued (AdaSPEED's product)"},
    };
    return joined({first, fields_of(d.skip), choice, fields_of(d.search), rest});
}

Status check_threshold(const TomlTable& table, float confidence_min, float reach_min) {
    if (confidence_min > 0.0F || reach_min >= AdaptiveThreshold::kLeast) return {};
    return table.error("threshold_adapts",
                       fmt::format("needs confidence_min, or reach_min of at least {}",
                                   AdaptiveThreshold::kLeast));
}

Status finish_draft(const TomlTable& table, DraftConfig& draft) {
    if (draft.model != DraftModelKind::Trained) draft.size = DraftSize::Small;
    draft.stand_in_given = table.has("stand_in");
    if (Status s = finish_guess(table, draft); !s.ok()) return s;
    if (Status s = check_source(table, draft); !s.ok()) return s;
    if (Status s = finish_tree(table, draft); !s.ok()) return s;
    if (draft.min_ngram > draft.max_ngram) {
        return table.error("min_ngram",
                           fmt::format("is greater than max_ngram {}", draft.max_ngram));
    }
    const GrowthRule& growth = draft.growth;
    if (growth.gamma_early != 0 && growth.pace != DraftPace::Lockstep)
        return table.error("gamma_early", "is for pace = \"lockstep\"");
    if (growth.gamma_early != 0 && growth.gamma_early >= growth.gamma)
        return table.error("gamma_early", fmt::format("must be less than gamma {}", growth.gamma));
    if (growth.adaptive && growth.pace != DraftPace::Sequential)
        return table.error("adaptive", "is for pace = \"sequential\"");
    if (growth.thompson && growth.pace != DraftPace::Sequential)
        return table.error("thompson", "is for pace = \"sequential\"");
    if (growth.thompson && growth.adaptive)
        return table.error("thompson", "is another rule for the length than adaptive = true");
    if (growth.threshold_adapts) {
        Status s = check_threshold(table, growth.confidence_min, growth.draft_reach_min);
        if (!s.ok()) return s;
    }
    return {};
}

}  // namespace paceline

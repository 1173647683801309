// DraftConfig: the table [draft] of a pipeline's file: the model or source of the stages "draft"
// and "correct", and how they grow their tree.
//
// Keys, ranges and meanings: fields_of(). Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/decoding/growth_rule.hpp"
#include "actors/decoding/guesses/datastore.hpp"
#include "actors/draft/grammar_source.hpp"
#include "actors/draft/lookahead_source.hpp"
#include "actors/draft/phrases.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/search_config.hpp"
#include "launch/config/skip_config.hpp"

namespace paceline {

struct Field;
class TomlTable;

enum class DraftModelKind : std::uint8_t { None, File, FirstLayers, SkipLayers, Trained, Eagle };
/// A source that needs no model and no training, beside prompt lookup; or phrases around a model.
enum class DraftGuess : std::uint8_t { None, Jacobi, Lookahead, Datastore, Phrases };
/// Whose n-grams a pool of phrases has.
enum class PhrasePoolOf : std::uint8_t { Request, Process };
enum class DraftSize : std::uint8_t { Small, Deep };

/// The stand-in for a trained draft. An EAGLE draft has none unless it is written.
struct DraftStandIn {
    bool lookup = true;
    DraftModelKind model = DraftModelKind::None;
};

struct DraftConfig {
    bool lookup = true;  // prompt lookup, alone or before the model
    DraftGuess guess = DraftGuess::None;
    DraftModelKind model = DraftModelKind::None;
    std::string model_file = {};  // of File; of Trained and Eagle its part; as in the file
    DraftSize size = DraftSize::Small;
    DraftStandIn stand_in = {};
    bool stand_in_given = false;         // the file names it
    double layers = 0.2;                 // of first-layers: whole, or a part of the depth below 1
    SkipConfig skip = {.interval = 32};  // of skip-layers
    SearchConfig search = {};
    bool whole_text = true;
    int short_list = 0;
    int min_ngram = 1;
    int max_ngram = 16;
    LookaheadOptions lookahead = {};  // of lookahead, and of the draft itself with phrases
    int phrases = 3;                  // K, below the trunk's tip
    PhrasePoolOf pool = PhrasePoolOf::Request;
    std::string datastore = {};                     // its file
    StoreOptions store = {};                        // but for min_ngram and max_ngram
    GrammarUse grammar = GrammarUse::MaskedForced;  // of answers that are bound to one
    GrowthRule growth = {};

    /// Puts the stand-in in the place of the trained draft; guesses and datastore stay.
    void use_stand_in();
    /// There is no file: what is beside the datastore drafts, or the stand-in if nothing is.
    void leave_out_datastore();
    /// Phrases around the model, if there are any.
    [[nodiscard]] std::optional<PhraseOptions> phrase_options() const;
    /// For the stage "correct": only the draft names the rows that it observes. Prompt lookup takes
    /// the place of guesses that stand alone.
    void observe_nothing();
    /// Whether there is a source that needs no model, alone or before one.
    [[nodiscard]] bool looks_up() const {
        return lookup || (guess != DraftGuess::None && guess != DraftGuess::Phrases);
    }
    /// Whether it has an answer at once, without a job. A datastore is read by jobs.
    [[nodiscard]] bool answers_at_once() const {
        return looks_up() && guess != DraftGuess::Datastore;
    }
    /// Whether it wants the target's tokens after rejected rows.
    [[nodiscard]] bool observes() const {
        return guess == DraftGuess::Jacobi || guess == DraftGuess::Lookahead ||
               guess == DraftGuess::Phrases;
    }
    /// Whether a model runs: a device's work, unlike lookups.
    [[nodiscard]] bool computes() const { return model != DraftModelKind::None; }
    /// Whether the model is a part that was trained for the target.
    [[nodiscard]] bool is_part() const {
        return model == DraftModelKind::Trained || model == DraftModelKind::Eagle;
    }
    /// Whether the last segment sends it the target's features.
    [[nodiscard]] bool reads_features() const { return model == DraftModelKind::Eagle; }
    /// Whether the model is the target's own, without some of its sub-layers.
    [[nodiscard]] bool skips() const {
        return model == DraftModelKind::FirstLayers || model == DraftModelKind::SkipLayers;
    }
    /// Whether the segments send it the residuals of the last accepted token after their layers.
    [[nodiscard]] bool is_tapped() const {
        return model == DraftModelKind::SkipLayers && skip.choose == SkipChoice::Programme;
    }
    /// Whether the draft searches its skip set while it serves.
    [[nodiscard]] bool searches() const {
        return model == DraftModelKind::SkipLayers && skip.choose == SkipChoice::Search;
    }
    /// The number of layers of "first-layers" in a target of `of` layers: at least one.
    [[nodiscard]] int layers_of(int of) const;
};

[[nodiscard]] std::vector<Field> fields_of(DraftConfig& draft);
/// Errors: BadArgument if `threshold_adapts` has no threshold to move.
[[nodiscard]] Status check_threshold(const TomlTable& table, float confidence_min, float reach_min);
/// Resets `size` with a source that does not read it: a file that extends one with a trained draft
/// has it. Errors: BadArgument for keys that the source does not have, or that contradict each
/// other.
[[nodiscard]] Status finish_draft(const TomlTable& table, DraftConfig& draft);

/// "prompt-lookup+model": as written in a file.
[[nodiscard]] std::string source_text(const DraftConfig& draft);

}  // namespace paceline

// DraftConfig: the table [draft] of a pipeline's file: what the stages "draft" and "correct" think
// with, and how they grow their tree.
//
//     source            "prompt-lookup"  "prompt-lookup", "trained" (the draft that was trained for
//                       this target, docs/trained-parts.md), "model", "first-layers" (the target's
//                       own first layers with its head), or "prompt-lookup+trained",
//                       "prompt-lookup+model", "prompt-lookup+first-layers": what stood in the text
//                       before comes first, the model goes on below it. `method` is the same key
//     size              "small"  of "trained": or "deep", slower and better; where there is only
//                       one, that one. Not read with another source
//     part              of "trained": its file, instead of one that is found (pretrained.hpp)
//     stand_in          "prompt-lookup"  of "trained": the source where the target has no such
//                       part, "prompt-lookup", "first-layers" or "prompt-lookup+first-layers". Not
//                       read with another source
//     model             of "model": a GGUF file with the target's tokenizer; its vocabulary may be
//                       smaller or padded
//     layers            0.2    of "first-layers": so many, or a part of the depth below 1
//     short_list        0      the head knows the first so many token ids only; 0: all. A trained
//                       draft has a list of its own
//     ngrams            [1, 16] shortest and longest run of tokens that is looked up; also
//                       min_ngram, max_ngram
//     pace              "sequential", "ahead" or "lockstep"
//     gamma             8      tokens on the trunk per round; with "ahead" at most
//     gamma_early       0      lockstep: of them, those before the exit's names are waited for
//     adaptive          false  gamma as in assisted generation: +2 if all were right, else -1
//     confidence_min    0      a chain ends after a token less probable than this
//     while_worth       false  sequential: a chain ends where another pass of the model costs more time
//                              than it may bring, as measured while it runs
//     width             1      nodes expanded in one pass of the model
//     own_alternatives  0      runners-up named after each node
//     exit_alternatives 0      k: of an exit's names at each row, those that are grown
//     branch_budget     48     nodes off the trunk that are expanded per root
//     reach_min         0.001  what is less probable than this is not expanded
//
// All keys are optional. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "actors/decoding/growth_rule.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {

enum class DraftModelKind : std::uint8_t { None, File, FirstLayers, Trained };
enum class DraftSize : std::uint8_t { Small, Deep };

/// What a trained draft is replaced by where there is none.
struct DraftStandIn {
    bool lookup = true;
    DraftModelKind model = DraftModelKind::None;
};

struct DraftConfig {
    bool lookup = true;  // prompt lookup, alone or before the model
    DraftModelKind model = DraftModelKind::None;
    std::string model_file = {};  // of File; of Trained its part: given, or found by use_parts()
    DraftSize size = DraftSize::Small;
    DraftStandIn stand_in = {};
    bool part_missing = false;  // these three are set by use_parts(), for people and costs: whether
    int part_layers = 0;        // the stand-in is in its place,
    int part_tokens = 0;        // what the part is like
    double layers = 0.2;        // of first-layers: whole, or a part of the depth below 1
    int short_list = 0;
    int min_ngram = 1;
    int max_ngram = 16;
    GrowthRule growth = {};

    /// Puts the stand-in in the place of the trained draft.
    void use_stand_in();
    /// Whether a model runs: a device's work, unlike lookups.
    [[nodiscard]] bool computes() const { return model != DraftModelKind::None; }
    /// The number of layers of "first-layers" in a target of `of` layers: at least one.
    [[nodiscard]] int layers_of(int of) const;
};

/// Errors: BadArgument, naming file, line, key, value and range.
[[nodiscard]] Result<DraftConfig> read_draft(const TomlTable& table);

/// "prompt-lookup+model": as written in a file.
[[nodiscard]] std::string source_text(const DraftConfig& draft);

}  // namespace paceline

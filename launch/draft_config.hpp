// DraftConfig: the table [draft] of a pipeline's file: what the stages "draft" and "correct" think
// with, and how they grow their tree.
//
//     source            "prompt-lookup"  "prompt-lookup", "model", "first-layers" (the target's own
//                       first layers with its head), or "prompt-lookup+model",
//                       "prompt-lookup+first-layers": what stood in the text before comes first,
//                       the model goes on below it. `method` is the same key
//     model             of "model": a GGUF file with the target's tokenizer; its vocabulary may be
//                       smaller or padded
//     layers            0.2    of "first-layers": so many, or a part of the depth below 1
//     short_list        0      the head knows the first so many token ids only; 0: all
//     ngrams            [1, 16] shortest and longest run of tokens that is looked up; also
//                       min_ngram, max_ngram
//     pace              "turns", "ahead" or "lockstep"
//     gamma             8      tokens on the trunk per turn or round; with "ahead" at most
//     gamma_early       0      lockstep: of them, those before the exit's names are waited for
//     adaptive          false  gamma as in assisted generation: +2 if all were right, else -1
//     confidence_min    0      a chain ends behind a token less probable than this
//     width             1      nodes expanded in one pass of the model
//     own_alternatives  0      runners-up named behind each node
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
#include "launch/toml_reader.hpp"

namespace paceline {

enum class DraftModelKind : std::uint8_t { None, File, FirstLayers };

struct DraftConfig {
    bool lookup = true;  // prompt lookup, alone or before the model
    DraftModelKind model = DraftModelKind::None;
    std::string model_file = {};
    double layers = 0.2;  // of first-layers: whole, or a part of the depth below 1
    int short_list = 0;
    int min_ngram = 1;
    int max_ngram = 16;
    GrowthRule growth = {};

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

// ExitConfig: the table [exit] of a pipeline's file: the head after the last layer of those
// segments that say `exit = true` or are an "early-verify", and what it is used for.
//
//     head           "trained"  the head that was trained for the exit's layer; "adapter": the
//                            trained adapter, which sees the text before (docs/trained-parts.md);
//                            "logit-lens": the target's own head; or "random": noise, for tests.
//                            Where the layer has no adapter its trained head stands in, where it
//                            has none either, the logit lens
//     part           of trained heads or the adapter: their file, instead of those that are found
//                            (pretrained.hpp)
//     seed           1       of random heads
//     short_list     0       of heads that are not trained: the first so many token ids; 0: all
//     names          FOLD: the `top` best tokens after each row of a wave are named to draft and
//                    correct. Default: true where there is a correct stage and the exit does not
//                    propose
//     top            4
//     lockstep       false   FOLD as published: the wave goes on only when the draft is Halfway
//     proposes       false   AdaDecode: a token that the head is sure of starts at layer 0 at once
//     gate           0.75    how sure: its probability; 0: always
//     early_max      5       rows without a verdict that an early token may stand after
//     defers         false   rows wait here for their deeper layers until a row comes through that
//                            the exit was not sure of
//     defer_limit_us 200000  but not longer than this
//     ahead          0       heads of the last segment for the positions + 2, + 3, ...: the trained
//                            ones, noise in the place of those that there are not
//     ahead_top      1       children per node of their tree
//     always_on      false   also while it costs more than it gains; in lockstep it always is
//
// All keys are optional. Plain values; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {

enum class ExitHead : std::uint8_t { LogitLens, Random, Trained, Adapter };

struct ExitConfig {
    ExitHead head = ExitHead::Trained;
    std::string part = {};          // as in the file
    std::string heads_file = {};    // of trained heads; these two are set by use_parts(), which
    std::string adapter_file = {};  // finds them; empty: there is none
    // What is in them, for people and costs; also set by use_parts().
    std::vector<int> head_layers = {};
    std::vector<int> adapter_layers = {};
    int ahead_trained = 0;
    int part_tokens = 0;  // of their short list
    std::uint64_t seed = 1;
    int short_list = 0;
    bool names_said = false;  // `names` was in the file
    bool names = false;
    int top = 4;
    bool lockstep = false;
    bool proposes = false;
    double gate = 0.75;
    int early_max = 5;
    bool defers = false;
    std::chrono::microseconds defer_limit{200'000};
    int ahead = 0;
    int ahead_top = 1;
    bool always_on = false;

    /// What is after layer `layer` in the end, once use_parts() has settled it.
    [[nodiscard]] ExitHead head_behind(int layer) const;
};

/// What takes the place of `wished` after a layer that has these parts.
[[nodiscard]] ExitHead settled_head(ExitHead wished, bool has_adapter, bool has_head);

/// Errors: BadArgument, naming file, line, key, value and range.
[[nodiscard]] Result<ExitConfig> read_exit(const TomlTable& table);

}  // namespace paceline

// ExitConfig: the table [exit] of a pipeline's file: the head behind the last layer of those
// segments that say `exit = true` or are an "early-verify", and what it is used for.
//
//     head           "logit-lens"  the target's own head; or "random": noise, for tests
//     seed           1       of random heads
//     short_list     0       the head knows the first so many token ids only; 0: all
//     names          FOLD: the `top` best tokens behind each row of a wave are named to draft and
//                    correct. Default: true where there is somebody to tell and the exit does not
//                    propose
//     top            4
//     lockstep       false   FOLD as published: the wave goes on only when the draft is Halfway
//     proposes       false   AdaDecode: a token that the head is sure of starts at layer 0 at once
//     gate           0.75    how sure: its probability; 0: always
//     early_max      5       rows without a verdict that an early token may stand behind
//     defers         false   rows wait here for their deeper layers until a row comes through that
//                            the exit was not sure of
//     defer_limit_us 200000  but not longer than this
//     ahead          0       heads of the last segment for the positions + 2, + 3, ...
//     ahead_top      1       children per node of their tree
//
// All keys are optional. Plain values; any thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "ipc/base/result.hpp"
#include "launch/toml_reader.hpp"

namespace paceline {

enum class ExitHead : std::uint8_t { LogitLens, Random };

struct ExitConfig {
    ExitHead head = ExitHead::LogitLens;
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
};

/// Errors: BadArgument, naming file, line, key, value and range.
[[nodiscard]] Result<ExitConfig> read_exit(const TomlTable& table);

}  // namespace paceline

// ExitConfig: the table [exit] of a pipeline's file: the head after the last layer of segments with
// `exit = true` or the role "early-verify", and what it is used for.
//
// Keys, ranges and meanings: fields_of(). Plain values; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline {

struct Field;
class TomlTable;

enum class ExitHead : std::uint8_t { Trained, Adapter, LogitLens, Random };

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
    int short_list = 0;
    bool candidates_given = false;  // `candidates` was in the file
    bool sends_candidates = false;
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

    /// What is after layer `layer` in the end, once use_parts() has resolved it.
    [[nodiscard]] ExitHead head_behind(int layer) const;
};

/// What takes the place of `wanted` after a layer that has these parts.
[[nodiscard]] ExitHead resolved_head(ExitHead wanted, bool has_adapter, bool has_head);

[[nodiscard]] std::vector<Field> fields_of(ExitConfig& exit);
/// What follows from several keys. Errors: BadArgument for settings of a use that is not asked for.
[[nodiscard]] Status finish_exit(const TomlTable& table, ExitConfig& exit);

}  // namespace paceline

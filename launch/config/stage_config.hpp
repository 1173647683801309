// StageConfig: one [[stage]] of a pipeline's file.
//
//     name       unique, at most 64 bytes
//     role       "segment", or what a segment is there for: "early-verify" (an exit that names
//                stands at its end) and "final-verify" (the last one); "draft", "correct"
//     layers     of a segment: [first, last], fractions of the depth, or "auto": an even share
//     segments   of a segment with "auto" layers: it stands for so many, called name-1, name-2, ...
//     exit       of a segment: whether [exit] stands at its end
//     cores, threads, process, on_death      where it runs, what its loss means
//     device     "cpu" (the default) or "cuda:N": what it computes on. All segments are on CPUs or
//                all on GPUs; those that share a GPU share a process
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/device.hpp"
#include "launch/config/toml_reader.hpp"
#include "runtime/parent/recovery.hpp"

namespace paceline {

enum class StageRole : std::uint8_t { Segment, Draft, Correct };

/// Layers [first, last) of the target.
struct LayerRange {
    int first = 0;
    int last = 0;
    friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// The same as parts of the depth, 0 to 1; each bound is rounded to the nearest layer.
struct LayerFractions {
    double first = 0.0;
    double last = 1.0;
};

/// An even share of the layers, in the order of the stages.
struct AutoLayers {};

using LayerChoice = std::variant<AutoLayers, LayerRange, LayerFractions>;

struct StageConfig {
    std::string name;
    StageRole role = StageRole::Segment;
    bool exit = false;         // of a segment: [exit] stands at its end
    bool final = false;        // written as "final-verify": must be the last segment
    bool one_of_many = false;  // of a [[stage]] with `segments`
    LayerChoice layers{};      // of a segment
    std::vector<int> cores{};  // empty: all that the process may use
    int threads = 0;           // 0: one per core
    Device device{};
    std::string process{};  // stages that name the same one share it; empty: one of its own
    OnDeath on_death = OnDeath::RebuildChain;
};

/// A name that fits into one line of a log and one cell of a table.
[[nodiscard]] Status read_name(const TomlTable& table, std::string_view key, std::string& name);

/// The stages that one [[stage]] stands for: one, or as many as `segments` says.
/// Errors: BadArgument, naming file, line, key, value and range.
[[nodiscard]] Result<std::vector<StageConfig>> read_stages(const TomlTable& table);

}  // namespace paceline

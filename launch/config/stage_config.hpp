// StageConfig: one [[stage]] of a pipeline's file.
//
// Keys, ranges and meanings: fields_of(). Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/device.hpp"
#include "runtime/loop/process_spec.hpp"

namespace paceline {

struct Field;
class TomlTable;

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
    int segments = 1;          // that this one stands for, until expand_stage()
    LayerChoice layers{};      // of a segment
    std::vector<int> cores{};  // empty: all that the process may use
    int threads = 0;           // 0: one per core
    Device device{};
    bool device_given = false;  // the file names it
    int tensor = 1;             // GPUs that share the stage, where a plan chooses them
    std::string node{};         // the machine that it runs on; empty: the conductor's
    std::string process{};      // stages that name the same one share it; empty: one of its own
    OnDeath on_death = OnDeath::RebuildChain;
    std::int32_t retain_mb = 0;  // of a segment: memory for the hidden states that it passed on
};

[[nodiscard]] inline bool is_segment(const StageConfig& stage) {
    return stage.role == StageRole::Segment;
}

[[nodiscard]] std::vector<Field> fields_of(StageConfig& stage);
/// A key `name` that fits into one line of a log and one cell of a table.
[[nodiscard]] Field name_field(std::string_view key, std::string& name, std::string_view sentence);

/// The stages that `stage`, just read from `table`, stands for: one, or as many as `segments` says.
/// Errors: BadArgument for keys that are missing, or contradict each other.
[[nodiscard]] Result<std::vector<StageConfig>> expand_stage(const TomlTable& table,
                                                            StageConfig stage);

}  // namespace paceline

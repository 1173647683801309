// PipelineConfig: which stages a pipeline has, what each one does and where it runs, read from a
// TOML file (configs/ holds commented examples).
//
//     [pipeline]     name
//     [[stage]]      name, role = "segment" | "draft", layers, cores, threads, device, process,
//                    on_death                                            (in pipeline order)
//     [draft]        method = "prompt-lookup", gamma, min_ngram, max_ngram  (with a draft stage)
//     [schedule]     mode = "turns", draft_wait_us
//     [supervision]  what happens when stages die: supervision_config.hpp
//
// A file describes a shape, not a machine or a model: layers may be fractions or "auto", cores
// and threads may be left out. placement.hpp makes it concrete for one model on one machine.
// Everything that a later part trusts has been checked when a value is returned; what is wrong is
// named with file, key and value, and a key that nobody knows is refused. Plain values, no I/O
// but the reading of the file; no state, any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "launch/supervision_config.hpp"
#include "runtime/recovery.hpp"

namespace paceline {

enum class StageRole : std::uint8_t { Segment, Draft };

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

/// What a stage computes on.
struct Device {
    std::optional<int> gpu;  // N of "cuda:N"; nothing: the CPU
    friend bool operator==(const Device&, const Device&) = default;
};
/// "cpu", "cuda:0": as written in a file.
[[nodiscard]] std::string to_text(const Device& device);

struct StageConfig {
    std::string name;
    StageRole role = StageRole::Segment;
    LayerChoice layers{};      // of a segment
    std::vector<int> cores{};  // empty: all that the process may use
    int threads = 0;           // 0: one per core
    Device device{};
    std::string process{};  // stages that name the same one share it; empty: one of its own
    OnDeath on_death = OnDeath::RebuildChain;
};

enum class DraftMethod : std::uint8_t { PromptLookup };

struct DraftConfig {
    DraftMethod method = DraftMethod::PromptLookup;
    int gamma = 8;      // tokens proposed at once, 1 .. kGammaMax
    int min_ngram = 1;  // shortest and longest run of tokens that is looked up
    int max_ngram = 3;
};

enum class ScheduleMode : std::uint8_t {
    Turns,  // the target waits for the draft's proposal, the draft for the target's verdict
};

struct ScheduleConfig {
    ScheduleMode mode = ScheduleMode::Turns;
    std::chrono::microseconds draft_wait{2000};  // then the target starts with the root alone
};

struct PipelineConfig {
    std::string file;  // where it was read from, for messages
    std::string name;
    std::vector<StageConfig> stages;   // segments in the order of their layers
    std::optional<DraftConfig> draft;  // present exactly when a stage has the role draft
    ScheduleConfig schedule;
    SupervisionConfig supervision;
};

/// Reads and checks `path`. Errors: BadFile (missing, not TOML, with the line), BadArgument
/// (unknown keys, values out of range, names used twice, a draft without settings).
[[nodiscard]] Result<PipelineConfig> read_pipeline_config(const std::string& path);

/// The same from text; `file` is the name used in messages.
[[nodiscard]] Result<PipelineConfig> parse_pipeline_config(std::string_view text,
                                                           const std::string& file);

/// What `paceline run` without --config runs: one segment that holds all layers; with the method
/// "prompt-lookup", a draft in front of it.
[[nodiscard]] PipelineConfig built_in_pipeline(std::optional<DraftMethod> method);

}  // namespace paceline

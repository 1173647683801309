// Finds running pipelines through /proc, without names, files or a server.
//
// The conductor of a run holds its own telemetry block and those of its stages open
// (stage_telemetry.hpp), so they appear in /proc/PID/fd as links that begin with
// "/memfd:paceline-telemetry". A process of the same user may map them for reading. The search is
// repeated for each sample, because stages may be restarted in between.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/observe/stage_telemetry.hpp"

namespace paceline {

enum class ProcessState : std::uint8_t { Alive, Stopped, Gone };

/// One stage at one moment: of all its incarnations the newest.
struct StageSample {
    TelemetrySnapshot telemetry;
    ProcessState process = ProcessState::Alive;
};

/// One pipeline at one moment: the conductor first, then its stages by id.
struct PipelineSample {
    pid_t conductor = 0;
    std::chrono::nanoseconds at{0};  // CLOCK_MONOTONIC
    std::vector<StageSample> stages;
};

/// All pipelines of this user, by the conductor's process id; with `only`, that one alone.
/// `proc` is where the proc file system is mounted.
[[nodiscard]] std::vector<PipelineSample> scan_pipelines(std::optional<pid_t> only = {},
                                                         const std::string& proc = "/proc");

}  // namespace paceline

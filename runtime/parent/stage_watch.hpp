// StageWatch: decides from a telemetry block, and from the state of the process, whether a stage hangs. Pure.
//
// - A stage whose published deadline has passed hangs, whatever it is doing: waits have limits
//   too, so a loop that lives always has a deadline ahead of it.
// - A stopped process (SIGSTOP, a debugger) publishes nothing: it gets the stop grace instead,
//   and after it goes on a moment to publish its next deadline.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "runtime/observe/stage_telemetry.hpp"

namespace paceline {

class StageWatch {
public:
    using Nanos = std::chrono::nanoseconds;  // CLOCK_MONOTONIC

    explicit StageWatch(std::chrono::milliseconds stop_grace) : stop_grace_{stop_grace} {}

    void stopped(bool is_stopped, Nanos now);
    /// The caller did not poll for a while: deadlines that passed meanwhile do not count.
    void excuse(Nanos now);
    /// Why the stage is to be replaced, as the rest of a sentence that begins with its name;
    /// nothing if it is well.
    [[nodiscard]] std::optional<std::string> complaint(const TelemetrySnapshot& telemetry,
                                                       Nanos now) const;

private:
    std::chrono::milliseconds stop_grace_;
    std::optional<Nanos> stopped_since_;
    Nanos lenient_until_{0};
};

}  // namespace paceline

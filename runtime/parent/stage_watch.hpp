// StageWatch: decides from a telemetry block, and from the state of the process, whether a stage hangs. Pure.
//
// - A stage whose published deadline has passed hangs, whatever it is doing: waits have limits
//   too, so a loop that lives always has a deadline ahead of it.
// - A deadline moves with every pause after the activity began: of the process alone (it was stopped and
//   continued), or of the caller, with which the whole machine may have been frozen. The newest
//   pauses alone count: a caller that is always late (its own handlers take long) still finds a hang.
// - A stopped process (SIGSTOP, a debugger) publishes nothing: it gets the stop grace instead,
//   and after it goes on a moment to publish its next deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "runtime/observe/stage_telemetry.hpp"

namespace paceline {

class StageWatch {
public:
    using Nanos = std::chrono::nanoseconds;  // CLOCK_MONOTONIC

    explicit StageWatch(std::chrono::milliseconds stop_grace) : stop_grace_{stop_grace} {}

    void stopped(bool is_stopped, Nanos now);
    /// Nothing may have run for `gap` until now: what was published before has as much longer.
    void paused(Nanos now, Nanos gap);
    /// Why the stage is to be replaced, as the rest of a sentence that begins with its name;
    /// nothing if it is well.
    [[nodiscard]] std::optional<std::string> complaint(const TelemetrySnapshot& telemetry,
                                                       Nanos now) const;

    [[nodiscard]] bool is_stopped() const { return stopped_since_.has_value(); }

private:
    struct Pause {
        Nanos until;
        Nanos gap;
    };
    static constexpr std::size_t kPausesMax = 16;
    [[nodiscard]] Nanos paused_since(Nanos since) const;
    [[nodiscard]] bool is_always_late(Nanos since) const;

    std::chrono::milliseconds stop_grace_;
    std::optional<Nanos> stopped_since_;
    std::deque<Pause> pauses_;  // the newest
    Nanos lenient_until_{0};
};

/// What the next incarnation is told of the jobs of this one. `hung`: it was killed in a job that went on
/// after its deadline: that job takes longer than was expected of it, so the next one may take ten times as
/// long, but no longer than `limit_max`. A hang is noticed later then, and a job that is merely slow ends.
[[nodiscard]] JobRecords inherited_jobs(const TelemetrySnapshot& telemetry,
                                        bool hung,
                                        std::chrono::microseconds limit_max);

}  // namespace paceline

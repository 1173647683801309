// StageWatch: decides from a telemetry block, and from the state of the process, whether a stage
// hangs. Pure.
//
// - A stage whose published deadline has passed hangs, in any activity: waits have limits too, so a
//   running loop always has a deadline in the future.
// - A deadline is extended by every pause after the activity began: of the process alone (it was
//   stopped and continued), or of the caller, with which the whole machine may have been frozen.
//   Only the newest pauses count, so that a caller that is always late (its own handlers take long)
//   still finds a hang.
// - A stopped process (SIGSTOP, a debugger) publishes nothing: it gets the stop grace instead,
//   and after it continues, a moment to publish its next deadline.
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
    /// Nothing may have run for `gap` until now: earlier deadlines are extended by it.
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

/// The job records that the next incarnation starts with. `hung`: the stage was killed in a job
/// that exceeded its deadline; in case the job is only slow, the next incarnation may take ten
/// times as long for it, but at most `limit_max`. A real hang is then detected later.
[[nodiscard]] JobRecords inherited_jobs(const TelemetrySnapshot& telemetry,
                                        bool hung,
                                        std::chrono::microseconds limit_max);

}  // namespace paceline

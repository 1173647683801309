// LoopTelemetry: what a loop publishes in its process's telemetry block: its activity with a
// deadline, its counters, and its trace events with their time.
//
// An activity may take its expected time plus the hang limit; a wait's expected time is its limit,
// a job's comes from job_limits.hpp. Without a hang limit nothing has a deadline.
// Borrows the telemetry block. Threads: the loop's.
#pragma once

#include <cstdint>

#include "runtime/loop/context.hpp"
#include "runtime/loop/job_limits.hpp"
#include "runtime/observe/counters.hpp"
#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/observe/trace.hpp"

namespace paceline {

/// The clock of loops and of their trace events.
[[nodiscard]] Micros steady_now();

class LoopTelemetry {
public:
    /// `hang_limit` 0: not limited. `row`: the time of one row through everything of this process;
    /// 0: unknown.
    LoopTelemetry(StageTelemetry& block, Micros hang_limit, Micros row)
        : block_{block}, hang_limit_{hang_limit}, limits_{block, row} {}

    void begin_handling() { enter(Activity::Handling, Micros{0}); }
    /// Returns the time at which the job begins.
    [[nodiscard]] Micros begin_job(const JobLabel& label);
    void end_job(const JobLabel& label, Micros start, JobOutcome outcome);
    void begin_wait(Micros limit) { enter(Activity::Waiting, limit); }
    void end_wait(Micros start, bool slept);
    void end_loop() { block_.enter(Activity::Ended, Micros{0}); }

    void count(Counter counter, std::uint64_t add = 1) { block_.count(counter, add); }
    void set(Gauge gauge, std::uint64_t value) { block_.set(gauge, value); }
    /// `event` is complete but for its time.
    void trace(TraceEvent event);

private:
    void enter(Activity activity, Micros expected, std::uint32_t job = 0);
    void trace_span(TraceKind kind, Micros start, const JobLabel& label);

    StageTelemetry& block_;
    Micros hang_limit_;
    JobLimits limits_;
};

}  // namespace paceline

// JobLimits: the longest expected time of a stage's next job. A job that takes longer than this
// plus the hang limit counts as hung.
//
// The expected time is ten times that of the longest job of its name; for a job with more rows than
// any before, ten times the time of that many rows at the rate of the largest one. It uses the jobs
// of this incarnation and of earlier ones (from the telemetry block that the supervisor passes on),
// and the time of one row, measured before the stage was Ready, so that a large first prefill does
// not count as a hang. Borrows the telemetry block. Threads: the stage's loop. The two functions
// are pure; the simulation uses them too.
#pragma once

#include "runtime/loop/context.hpp"
#include "runtime/observe/job_record.hpp"
#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/observe/trace.hpp"

namespace paceline {

/// A job may take this many times as long as its record says.
inline constexpr int kJobSlack = 10;

/// The longest expected time of a job, without the hang limit. `record`: the jobs of its name;
/// `row`: the time of one row, 0: unknown.
[[nodiscard]] Micros expected_time(JobRecord record, const JobLabel& label, Micros row);
/// The record after a job has ended. A cancelled job does not change the time per row.
[[nodiscard]] JobRecord noted(JobRecord record,
                              const JobLabel& label,
                              Micros took,
                              JobOutcome outcome);

class JobLimits {
public:
    /// `row`: the time of one row through everything of this process; 0: unknown.
    JobLimits(StageTelemetry& telemetry, Micros row) : telemetry_{telemetry}, row_{row} {}

    [[nodiscard]] Micros expected(const JobLabel& label) const;
    void note(const JobLabel& label, Micros took, JobOutcome outcome);

private:
    StageTelemetry& telemetry_;
    Micros row_;
};

}  // namespace paceline

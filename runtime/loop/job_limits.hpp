// JobLimits: how long the next job of a stage is expected to take at most; longer than that and the hang
// limit, and the stage counts as hung.
//
// Ten times the longest job of its name; of a job with more rows than any before it, ten times what so many
// rows take at the rate of the largest one. Known are the jobs of this incarnation and of those before it
// (the telemetry block that the supervisor hands on), and the time of one row, measured before the stage was
// Ready: so a large first prefill is not taken for a hang.
// Borrows the telemetry block. Threads: the stage's loop. The two functions are pure: the simulation has the
// same rules.
#pragma once

#include <cstdint>

#include "runtime/loop/context.hpp"
#include "runtime/observe/job_record.hpp"
#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/observe/trace.hpp"

namespace paceline {

/// A job may take this many times as long as its record says.
inline constexpr int kJobSlack = 10;

/// What a job may take beside the hang limit. `record`: of its name; `row`: of one row, 0: unknown.
[[nodiscard]] Micros expected_time(JobRecord record, const JobLabel& label, Micros row);
/// The record after a job has ended. One that was cancelled says nothing of what its rows take.
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

// SimJobs: the jobs of one simulated incarnation as its telemetry block would show them: their
// deadlines (runtime/loop/job_limits.hpp), the running one, and the records for the next
// incarnation.
//
//     begin() --> [Computing, until a deadline] -- end() --> [Waiting]
//
// The world's supervisor looks at snapshot() with a real StageWatch. One thread.
#pragma once

#include "runtime/loop/job_limits.hpp"
#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

class SimJobs {
public:
    /// `row`: as measured before the incarnation was at work; 0: unknown. `before`: of those before
    /// it.
    SimJobs(Micros row, const JobRecords& before) : row_{row} { shown_.jobs = before; }

    /// A job begins that may take `hang_limit` longer than is expected of it. Its deadline.
    SimTime begin(const JobLabel& label, SimTime now, Micros hang_limit) {
        shown_.activity = Activity::Computing;
        shown_.job = job_name_index(label.name);
        shown_.since = now;
        shown_.deadline = now + hang_limit + expected_time(shown_.jobs[shown_.job], label, row_);
        return shown_.deadline;
    }
    void end(const JobLabel& label, SimTime took, JobOutcome outcome) {
        JobRecord& record = shown_.jobs[job_name_index(label.name)];
        record = noted(record, label, std::chrono::duration_cast<Micros>(took), outcome);
        shown_.activity = Activity::Waiting;
        shown_.deadline = SimTime{0};
    }
    [[nodiscard]] const TelemetrySnapshot& snapshot() const { return shown_; }

private:
    Micros row_;
    TelemetrySnapshot shown_;
};

}  // namespace paceline

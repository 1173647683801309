// SimJobs: the jobs of one simulated incarnation. A job takes virtual time; its work is done at the
// beginning or the end of that time.
//
//     begin() --> [busy] -- JobDone: stop(), the work if it is still to do, end() --> [idle]
//
// JobDone ends the job; Overdue comes at its deadline (runtime/loop/job_limits.hpp) if that is
// earlier. The end moves when jobs beside it on a shared device begin or end, and when the machine
// is suspended: each end has a number, and the event of an earlier one is stale.
//
// Writes what a telemetry block would show of jobs; the supervisor looks at it with a real
// StageWatch. One thread.
#pragma once

#include <cstdint>

#include "runtime/loop/context.hpp"
#include "runtime/simulation/sim_site.hpp"
#include "runtime/simulation/sim_telemetry.hpp"

namespace paceline {

class SimJobs {
public:
    /// `before`: records of earlier incarnations.
    SimJobs(const SimIdentity& self, SimTelemetry& telemetry, const JobRecords& before);

    [[nodiscard]] bool is_busy() const { return busy_; }
    void begin(const JobLabel& label, SimTime takes);
    /// Whether JobDone with this number is the job's end.
    [[nodiscard]] bool is_end(std::uint64_t number) const { return number == end_number_; }
    /// Its time is over.
    void stop();
    void end(JobOutcome outcome);

    /// Its end, if a job runs: others on its device have begun or ended.
    void move_end(SimTime at) {
        if (busy_ && at != ends_) set_end(at);
    }
    /// The machine stands still for `gap`.
    void suspend(SimTime gap) {
        if (busy_) set_end(ends_ + gap);
    }

private:
    void set_end(SimTime at);
    void trace(SimTime took);

    const SimIdentity& self_;
    SimTelemetry& telemetry_;
    Micros row_{0};  // as measured before the incarnation was at work; 0: unknown
    JobLabel label_;
    bool busy_ = false;
    SimTime began_{0};
    SimTime ends_{0};
    std::uint64_t end_number_ = 0;
};

}  // namespace paceline

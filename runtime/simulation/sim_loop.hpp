// SimLoop: the loop of one simulated incarnation: it feeds a real ActorHost from channels, a
// control connection and a virtual clock, and takes virtual time for its jobs. The counterpart of
// runtime/loop/stage_loop.hpp.
//
//               Wire: actors start, Ready
//   [waiting] -----------------------------> [running]
//
// While a job runs no handler runs, unless the spec says so (handlers_during_jobs, as beside a GPU
// stream). Owns actors and host, borrows the process. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/loop/actor_host.hpp"
#include "runtime/simulation/sim_environment.hpp"
#include "runtime/simulation/sim_jobs.hpp"
#include "runtime/simulation/sim_process.hpp"

namespace paceline {

class SimLoop {
public:
    SimLoop(SimProcess& process, const JobRecords& before);

    /// The actors begin, with these channels.
    void start(SimWire wire);
    [[nodiscard]] bool is_running() const { return body_ != nullptr; }
    /// Does everything that can be done now; says how the process has ended, if it has.
    [[nodiscard]] std::optional<SimEnd> run_until_blocked();
    /// The event JobDone: whether it has ended a job.
    [[nodiscard]] bool job_done(std::uint64_t number);

    [[nodiscard]] SimJobs& jobs() { return jobs_; }
    [[nodiscard]] const ActorHost& host() const { return host_; }

private:
    [[nodiscard]] bool may_handle() const;
    bool iterate();
    bool take_control();
    void take(SimMessage message);
    void lose(StageId peer);
    bool lose_faulty();
    bool drain(SimChannel& channel);
    bool call_rooms();
    void start_job();
    void plan_wake();

    SimProcess& process_;
    SimEnvironment environment_;
    SimJobs jobs_;
    bool ran_early_ = false;  // the work of the running job is done
    std::unique_ptr<SimBody> body_;
    ActorHost host_;
};

}  // namespace paceline

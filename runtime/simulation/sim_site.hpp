// SimSite: what the processes of a simulated world share, and the interface to their supervisor,
// which implements it (sim_supervisor.hpp). SimIdentity: which incarnation of which process.
//
// Borrows all but the options and the cancel board. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <fmt/core.h>
#include <functional>
#include <string>

#include "ipc/wire/cancel_board.hpp"
#include "ipc/wire/control.hpp"
#include "runtime/cluster/node_roll.hpp"
#include "runtime/parent/recovery.hpp"
#include "runtime/simulation/machines/sim_line.hpp"
#include "runtime/simulation/machines/sim_machine_plan.hpp"
#include "runtime/simulation/sim_core.hpp"
#include "runtime/simulation/sim_spec.hpp"
#include "runtime/simulation/sim_timing.hpp"

namespace paceline {

class SharedDevices;
class SimMachines;
class SimProcess;
class SimStages;
struct SimEdgeFault;

struct SimOptions {
    std::uint64_t seed = 1;
    RestartRules restarts{};
    Micros hang_limit{1'000'000};  // a freeze that lasts longer is noticed
    /// Jobs have the same deadlines as in a stage process (runtime/loop/job_limits.hpp); a process
    /// whose job takes longer counts as hung. false: no deadlines.
    bool job_limits = false;
    bool tracing = false;
    /// Half of the jobs of a process without handlers_during_jobs do their work at the start of
    /// their time instead of the end; the result must not depend on it. false: all do it at the
    /// end.
    bool jobs_may_run_early = true;
    std::function<void(const std::string& line)> on_line{};  // every event, in words
    SimMachinePlan machines{};                               // besides the conductor's
    /// Sets after how many more allocations one fails (-1: none does), and answers what was set.
    std::int64_t (*allocations)(std::int64_t left) = nullptr;
};

struct SimSite {
    SimSite(SimCore& the_core,
            SimTiming& the_timing,
            SimStages& the_stages,
            SharedDevices& the_devices,
            const SimOptions& the_options)
        : core{the_core},
          timing{the_timing},
          stages{the_stages},
          devices{the_devices},
          options{the_options} {}
    SimSite(const SimSite&) = delete;
    SimSite& operator=(const SimSite&) = delete;
    virtual ~SimSite() = default;

    /// The conductor's control message for an actor of a stage.
    virtual void post(StageId from, StageId to, const control::Message& message) = 0;
    /// StageContext::excuse_loss() of the conductor's actor.
    virtual void excuse_loss(StageId stage) = 0;
    /// The conductor's process has got an invalid message of this incarnation.
    virtual void report_fault(const SimEdgeFault& fault) = 0;
    /// `process` has ended.
    virtual void ended(SimProcess& process) = 0;
    /// A machine is lost or back.
    virtual void machine_news(const NodeRoll::News& news) = 0;

    SimCore& core;
    SimTiming& timing;
    SimStages& stages;
    SharedDevices& devices;
    const SimOptions options;
    SimMachines* machines = nullptr;  // nullptr: there is no other machine
    // Of the conductor's machine. One thread: atomic for the actors' type.
    std::array<CancelBoard::Word, kCancelLines> board{};
};

/// No allocation fails while the world itself works inside of an actor's call.
class AllocationPause {
public:
    explicit AllocationPause(const SimSite& site) : allocations_{site.options.allocations} {
        if (allocations_ != nullptr) left_ = allocations_(-1);
    }
    ~AllocationPause() {
        if (allocations_ != nullptr) allocations_(left_);
    }
    AllocationPause(const AllocationPause&) = delete;
    AllocationPause& operator=(const AllocationPause&) = delete;

private:
    std::int64_t (*allocations_)(std::int64_t left);
    std::int64_t left_ = -1;
};

struct SimIdentity {
    SimSite& site;
    const SimProcessSpec& spec;
    Epoch epoch;
    std::uint32_t serial;  // among all incarnations of the world; 0: the conductor
    SimLinePtr line{};     // to its machine; nullptr: it is on the conductor's

    [[nodiscard]] StageId id() const { return spec.process.id; }
    [[nodiscard]] bool is_conductor() const { return serial == 0; }
    [[nodiscard]] std::string title() const {
        return fmt::format("{}#{}", spec.process.name, epoch.value);
    }
    [[nodiscard]] SimTime now() const { return site.core.now; }
    /// An event of this incarnation.
    void push(SimTime at, SimEventKind kind, std::uint64_t data = 0) const {
        site.core.push(at, kind, serial, data);
    }
    template <class Text>
    void tell(Text text) const {
        const AllocationPause pause{site};
        site.core.tell([&] { return title() + " " + text(); });
    }
};

}  // namespace paceline

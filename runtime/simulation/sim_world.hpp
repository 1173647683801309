// SimWorld: runs the actors of a pipeline in one thread, with one seed and a virtual clock.
// Processes, channels and connections are simulated; actors, their hosts, the tensor pools
// and the recovery state machine (recovery.hpp) are the real ones.
//
//     SimWorld world(options, specs, edges);
//     world.start(conductor);
//     world.call_at(time, [&] { conductor.submit(...); });
//     world.run([&] { return all_ended; }, limit);
//     world.violation()                      // nothing, or the first check that failed
//
// The conductor's process does not crash: its death ends a run by design. The others crash, freeze,
// run out of memory, slow down or are suspected without reason (sim_faults.hpp), as the plan says.
// Other machines are lost, cut off or stand still (machines/sim_machines.hpp). Order on a channel
// and on a connection is kept, as the real ones keep it.
//
// The world checks by itself: the rules of recovery (sim_commands.hpp, sim_supervisor.hpp); a
// survivor keeps no channel to a lost peer (SimStages::forgotten_channels()); no stage loops
// without progress. Owns its parts, borrows timing and conductor. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/simulation/machines/sim_machines.hpp"
#include "runtime/simulation/shared_device.hpp"
#include "runtime/simulation/sim_core.hpp"
#include "runtime/simulation/sim_fault_injector.hpp"
#include "runtime/simulation/sim_stages.hpp"
#include "runtime/simulation/sim_supervisor.hpp"

namespace paceline {

class SimWorld final {
public:
    /// The conductor's edges are among `edges`.
    SimWorld(const SimOptions& options,
             SimTiming& timing,
             std::vector<SimProcessSpec> stages,
             std::vector<EdgeSpec> edges);

    /// All machines there, all processes at work in epoch 1, all channels there.
    void start(Actor& conductor);
    void call_at(SimTime at, std::function<void()> call);
    /// The whole machine is suspended for this time: every process, all jobs and the supervisor,
    /// which detects it by its own late poll.
    void suspend(SimTime lasts);

    /// Runs until `done`, a failed check, the end of the run, the last event, or the time `limit`.
    /// True if `done`.
    bool run(const std::function<bool()>& done, SimTime limit);

    [[nodiscard]] SimTime now() const { return core_.now; }
    [[nodiscard]] std::uint64_t events() const { return core_.events; }
    /// Of every event and its time: equal hashes, equal runs.
    [[nodiscard]] std::uint64_t hash() const { return core_.hash; }
    [[nodiscard]] const std::optional<std::string>& violation() const { return core_.violation; }
    /// Why the run ended before its time: the supervisor gave up, or the conductor failed.
    [[nodiscard]] const std::optional<Error>& gave_up() const { return core_.gave_up; }
    /// For checks of the caller.
    void violate(std::string what) { core_.violate(std::move(what)); }
    template <class Text>
    void tell(Text text) {
        core_.tell(text);
    }

    [[nodiscard]] SimStages& stages() { return stages_; }
    [[nodiscard]] const SimStages& stages() const { return stages_; }
    [[nodiscard]] SimSupervisor& supervisor() { return supervisor_; }
    [[nodiscard]] SimFaultInjector& faults() { return faults_; }
    /// nullptr: there is one machine.
    [[nodiscard]] SimMachines* machines() { return machines_ ? &*machines_ : nullptr; }

private:
    void dispatch(const SimEvent& event);

    SimCore core_;
    SimStages stages_;
    SharedDevices devices_;
    SimSupervisor supervisor_;
    SimFaultInjector faults_;
    std::optional<SimMachines> machines_;
    std::vector<std::function<void()>> calls_;
    SimTime suspended_until_{0};
};

}  // namespace paceline

// SimProcess: one incarnation of one process in a simulated world, from loading to its end. Its
// iterations are in sim_loop.hpp.
//
//                loaded: Hello       Wire: Ready
//   [Loading] ---------------> [Waiting] -----------> [Running] ---------> [Ended]
//                                                   frozen, busy          crash, kill, Failed
//
// A frozen process does nothing and then continues where it was, even if it has been replaced.
// What the world sees of it (its public parts) outlives its end; actors, host and loop do not.
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/simulation/sim_connection.hpp"
#include "runtime/simulation/sim_edges.hpp"
#include "runtime/simulation/sim_process_faults.hpp"
#include "runtime/simulation/sim_site.hpp"
#include "runtime/simulation/sim_telemetry.hpp"

namespace paceline {

class SimLoop;

/// How an incarnation has ended.
struct SimEnd {
    std::string how;
    bool failed_by_itself = false;  // without a fault
    bool unseen = false;            // its end is not reported: its machine is lost
};

class SimProcess final {
public:
    /// `before`: what earlier incarnations leave of their jobs.
    SimProcess(const SimIdentity& identity, const JobRecords& before);
    SimProcess(const SimProcess&) = delete;
    SimProcess& operator=(const SimProcess&) = delete;
    ~SimProcess();

    /// It has loaded after so long.
    void load(SimTime takes);
    /// The first incarnations and the conductor are born wired.
    void run_at_once(SimWire wire);
    void receive(SimMessage message);
    void wake(SimTime at);
    /// The whole machine is suspended until then: its job and its loading take `gap` longer.
    void suspend(SimTime until, SimTime gap);
    void die(SimEnd end);

    // Events.
    void loaded(std::uint64_t load);
    void step(SimTime event_at);
    void job_done(std::uint64_t number);
    void thaw();

    [[nodiscard]] const std::optional<SimEnd>& end() const { return end_; }
    [[nodiscard]] bool ended() const { return end_.has_value(); }
    [[nodiscard]] std::string exit_report() const {
        return end_ ? self.title() + " " + end_->how : std::string{};
    }
    /// Until it has ended.
    [[nodiscard]] SimLoop& loop() { return *loop_; }

    const SimIdentity self;
    SimProcessFaults faults{self};
    SimTelemetry telemetry{};
    SimConnection connection{self};
    SimEdges edges{self};

private:
    void schedule_loaded(SimTime at);
    void run();

    std::optional<SimTime> load_ends_;  // nothing: it does not load
    std::uint64_t load_ = 0;            // number of its end, which a suspension moves
    SimTime wake_at_ = SimTime::max();
    std::unique_ptr<SimLoop> loop_;
    std::optional<SimEnd> end_;
};

}  // namespace paceline

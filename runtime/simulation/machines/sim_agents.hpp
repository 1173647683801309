// SimAgents: the other machines of a simulated world and the agents on them: they connect, ask for
// their lease, kill their stages when the connection or the lease is over, and connect anew.
//
//   [dialling] --- Hello ---> [connected] --- end of connection or lease: kills its stages
//       ^                                                                    |
//       +--------------------------------------------------------------------+
//
// Modelled after AgentSession and launch/cluster/agent, with the real LeaseHolder. A machine can
// lose its power, its agent or its link, and can stand still; SimMachines says when. Borrows site,
// calls and places. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cluster/lease.hpp"
#include "runtime/simulation/machines/sim_later.hpp"
#include "runtime/simulation/machines/sim_places.hpp"

namespace paceline {

class SimAgents {
public:
    SimAgents(SimSite& site, SimLater& later, SimPlaces& places);

    /// All are connected.
    void begin();
    /// The conductor has closed the connection.
    void closed(const SimPlaces::Agent& agent, const SimLinePtr& line);

    // What happens to machines, from 1.

    /// It is gone with all that ran there, and says so or not.
    void die(std::uint32_t machine, bool says_so);
    /// An agent is started on it.
    void boot(std::uint32_t machine);
    void cut(std::uint32_t machine, bool up, bool down, SimTime until);
    /// The answer to its next Hello is so late, and nothing that it asks then passes.
    void cut_at_hello(std::uint32_t machine, SimTime lasts) { at(machine).hello_cut = lasts; }
    void freeze(std::uint32_t machine, SimTime until, bool clock_stops);

    /// Whether an agent runs there.
    [[nodiscard]] bool is_alive(std::uint32_t machine) const {
        return machines_[machine - 1].alive;
    }

private:
    struct Machine {
        std::uint32_t number = 0;
        std::uint32_t session = 1;  // of its agent
        bool alive = true;
        SimLinePtr line{};
        std::optional<LeaseHolder> lease{};
        SimTime up_cut{0};
        SimTime down_cut{0};
        std::optional<SimTime> hello_cut{};
        SimTime frozen{0};
        SimTime clock_behind{0};
    };

    [[nodiscard]] Machine& at(std::uint32_t number) { return machines_[number - 1]; }
    [[nodiscard]] SimTime clock(const Machine& machine) const {
        return site_.core.now - machine.clock_behind;
    }
    /// Until then it cannot be connected.
    [[nodiscard]] static SimTime unreachable(const Machine& machine);
    void dial(std::uint32_t number, std::uint32_t session, SimTime after);
    void connect(std::uint32_t number, std::uint32_t session);
    void say_hello(Machine& machine);
    void greeted(std::uint32_t number, const SimLinePtr& line, SimTime said_hello);
    void round(std::uint32_t number, const SimLinePtr& line);
    void ask(Machine& machine, const SimLinePtr& line);
    void end_session(Machine& machine, const std::string& why);
    [[nodiscard]] SimTime kill_stages(const SimLinePtr& line);
    void thaw(std::uint32_t number, SimTime gap, bool clock_stopped);

    SimSite& site_;
    SimLater& later_;
    SimPlaces& places_;
    const SimMachinePlan& plan_;
    std::vector<Machine> machines_;
};

}  // namespace paceline

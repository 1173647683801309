// SimPlaces: the conductor's end of the other machines of a simulated world, as NodeSlot,
// RemoteNode and ConductorHub are in a real one: the places that the run has for machines, which
// machine has which, their leases, and what follows for the stages there.
//
// Leases and what follows are the real LeaseGranter and NodeRoll; who gets which place is modelled
// after ConductorHub. Checks that the stages of a machine whose lease is over have ended, unless
// the machine stood still meanwhile. Borrows site and calls. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cluster/lease.hpp"
#include "runtime/cluster/node_roll.hpp"
#include "runtime/simulation/machines/sim_later.hpp"
#include "runtime/simulation/sim_process.hpp"

namespace paceline {

class SimPlaces {
public:
    /// An agent's process on a machine, from 1.
    struct Agent {
        std::uint32_t machine = 0;
        std::uint32_t session = 0;
        friend bool operator==(const Agent&, const Agent&) = default;
    };
    /// The conductor has closed the connection, which the agent is to learn.
    using OnClosed = std::function<void(const Agent& agent, const SimLinePtr& line)>;

    SimPlaces(SimSite& site, SimLater& later, OnClosed on_closed);

    /// A machine says Hello; false: it is refused.
    [[nodiscard]] bool hello(const Agent& agent, const SimLinePtr& line);
    /// It asks for its lease; whether that is granted.
    [[nodiscard]] bool ask(const SimLinePtr& line);
    /// The other end has closed the connection.
    void lost(const SimLinePtr& line, const std::string& why);

    /// Of a node of the run, from 1; nullptr: it is not connected.
    [[nodiscard]] const SimLinePtr& line_of(std::uint32_t node) const {
        return places_[node - 1].line;
    }
    void started(const SimProcess& process);
    void ended(const SimProcess& process);
    [[nodiscard]] bool accepts(const SimProcess& process) const;
    /// A word of the conductor's board has changed.
    void publish(std::size_t index);

private:
    struct Place {
        explicit Place(std::uint32_t machine)
            : named{machine}, roll{"machine-" + std::to_string(machine), std::nullopt} {}
        std::uint32_t named;  // the machine that has it, or had it last
        Agent agent{};
        SimLinePtr line{};
        std::optional<LeaseGranter> lease{};
        Epoch epoch{0};
        std::string why{};
        NodeRoll roll;
    };
    struct Guest {
        Agent agent;
        SimLinePtr line;
    };

    [[nodiscard]] Place* place_of(const SimLinePtr& line);
    [[nodiscard]] std::optional<std::size_t> place_for(std::uint32_t machine) const;
    void seat(std::size_t index, const Guest& guest);
    void seat_spares();
    void look(std::size_t index, Epoch epoch);
    void lose(Place& place, const std::string& why);
    void close(Place& place, const std::string& why);
    void end_lease(std::size_t index, const std::string& why);
    void send_word(const SimLinePtr& line, std::size_t index);
    void tell_news(Place& place);

    SimSite& site_;
    SimLater& later_;
    OnClosed on_closed_;
    LeaseRules rules_;
    std::vector<Place> places_;
    std::vector<Guest> guests_;
};

}  // namespace paceline

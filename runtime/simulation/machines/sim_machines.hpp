// SimMachines: the other machines of a simulated world: the conductor's end (sim_places.hpp), the
// agents' (sim_agents.hpp), and what the plan does to them.
//
// Borrows the site. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/simulation/machines/sim_agents.hpp"
#include "runtime/simulation/machines/sim_later.hpp"
#include "runtime/simulation/machines/sim_places.hpp"

namespace paceline {

class SimMachines {
public:
    explicit SimMachines(SimSite& site);
    SimMachines(const SimMachines&) = delete;
    SimMachines& operator=(const SimMachines&) = delete;

    /// All machines are there. Before any stage is.
    void begin();
    /// The event Machine.
    void run(std::uint64_t number) { later_.run(number); }

    /// Of a node of the run; nullptr: the conductor's, or it is not connected.
    [[nodiscard]] SimLinePtr line_of(std::uint32_t node) const {
        return node == 0 ? SimLinePtr{} : places_.line_of(node);
    }
    [[nodiscard]] SimPlaces& places() { return places_; }

    /// When all is quiet: a sentence about what is left of a lost machine, or about a place that
    /// stays free although a machine could have it.
    [[nodiscard]] std::optional<std::string> leftovers() const;

private:
    void strike(const SimMachineFault& fault);

    SimSite& site_;
    SimLater later_;
    SimPlaces places_;
    SimAgents agents_;
};

}  // namespace paceline

// SimFaultInjector: does to the processes of a simulated world what the faults of its plan say.
//
// Borrows the site; the plan may grow during the run. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/simulation/sim_faults.hpp"
#include "runtime/simulation/sim_stages.hpp"

namespace paceline {

class SimFaultInjector {
public:
    explicit SimFaultInjector(SimSite& site) : site_{site} {}

    void add(const std::vector<SimFault>& faults);
    /// The event Fault: the fault with this number happens.
    void strike(std::size_t number);

private:
    void freeze(SimProcess& process, SimTime lasts);
    void stall_edges(SimTime lasts);

    SimSite& site_;
    std::vector<SimFault> faults_;
};

}  // namespace paceline

// SimMachinePlan: the other machines of a simulated world, and what happens to them. All of it is
// known before the run, so that it can be printed. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cluster/lease.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

enum class SimMachineFaultKind : std::uint8_t {
    PowerLoss,   // all of the machine is gone, without a report
    AgentDies,   // its agent is gone and its stages with it; the connection ends
    CutBoth,     // nothing passes for `lasts`; what is on its way comes later
    CutUp,       // ... to the conductor
    CutDown,     // ... from the conductor
    CutAtHello,  // the answer to its next Hello is so late, and then no ask passes
    Freeze,      // it stands still for `lasts`; its clock goes on
    Suspend,     // it stands still, and so does its clock
};
[[nodiscard]] const char* name_of(SimMachineFaultKind kind);

struct SimMachineFault {
    SimTime at{0};
    SimMachineFaultKind kind = SimMachineFaultKind::PowerLoss;
    std::uint32_t machine = 1;  // 1 .. others + spares
    SimTime lasts{0};           // PowerLoss, AgentDies: until another agent is started there
    bool is_back = true;        // ... or none is
};
[[nodiscard]] std::string describe(const SimMachineFault& fault);

struct SimMachinePlan {
    std::uint32_t others = 0;  // machines with stages besides the conductor's; 0: there are none
    std::uint32_t spares = 0;  // machines whose agents wait for a place
    LeaseRules lease{};
    SimTime delay{100'000};      // of a frame between two machines
    SimTime retry{500'000'000};  // of an agent without a connection, on average
    std::vector<SimMachineFault> faults{};
};

}  // namespace paceline

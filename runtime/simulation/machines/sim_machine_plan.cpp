#include "runtime/simulation/machines/sim_machine_plan.hpp"

#include <fmt/core.h>

namespace paceline {

const char* name_of(SimMachineFaultKind kind) {
    switch (kind) {
        case SimMachineFaultKind::PowerLoss:
            return "power loss";
        case SimMachineFaultKind::AgentDies:
            return "death of the agent";
        case SimMachineFaultKind::CutBoth:
            return "cut";
        case SimMachineFaultKind::CutUp:
            return "cut to the conductor";
        case SimMachineFaultKind::CutDown:
            return "cut from the conductor";
        case SimMachineFaultKind::CutAtHello:
            return "cut at the next Hello";
        case SimMachineFaultKind::Freeze:
            return "freeze";
        case SimMachineFaultKind::Suspend:
            return "suspension";
    }
    return "unknown";
}

std::string describe(const SimMachineFault& fault) {
    return fmt::format("{} of machine {} at {} us, lasts {} us{}", name_of(fault.kind),
                       fault.machine, fault.at.count() / 1'000, fault.lasts.count() / 1'000,
                       fault.is_back ? "" : ", no agent comes back");
}

}  // namespace paceline

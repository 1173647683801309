#include "runtime/simulation/sim_faults.hpp"

#include <fmt/core.h>

namespace paceline {

const char* name_of(SimFaultKind kind) {
    switch (kind) {
        case SimFaultKind::Crash:
            return "crash";
        case SimFaultKind::CrashInHandler:
            return "crash in a handler";
        case SimFaultKind::CrashAtStart:
            return "crash at the next start";
        case SimFaultKind::Freeze:
            return "freeze";
        case SimFaultKind::OutOfMemory:
            return "out of memory";
        case SimFaultKind::Slow:
            return "slow";
        case SimFaultKind::FalseSuspicion:
            return "false-suspicion";
        case SimFaultKind::Linger:
            return "linger";
        case SimFaultKind::StallEdges:
            return "stall of edges";
    }
    return "unknown";
}

std::string describe(const SimFault& fault) {
    return fmt::format("{} of stage {} at {} us, count {}, lasts {} us", name_of(fault.kind),
                       fault.process.value, fault.at.count() / 1'000, fault.count,
                       fault.lasts.count() / 1'000);
}

}  // namespace paceline

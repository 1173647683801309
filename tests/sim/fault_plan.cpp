#include "tests/sim/fault_plan.hpp"

#include <algorithm>
#include <array>

namespace paceline::testing {
namespace {

constexpr SimTime kMilli{1'000'000};
constexpr SimTime kSecond{1'000'000'000};

}  // namespace

std::vector<SimFault> plan_faults(SimRandom& random,
                                  const std::vector<StageId>& processes,
                                  std::uint32_t faults_max,
                                  SimTime until) {
    // As often as they are listed: what loses state is what recovery is about.
    static constexpr std::array kKinds{
        SimFaultKind::Crash,          SimFaultKind::Crash,          SimFaultKind::CrashInHandler,
        SimFaultKind::CrashInHandler, SimFaultKind::Freeze,         SimFaultKind::Freeze,
        SimFaultKind::CrashAtStart,   SimFaultKind::StallEdges,     SimFaultKind::OutOfMemory,
        SimFaultKind::Slow,           SimFaultKind::FalseSuspicion, SimFaultKind::Linger,
    };
    std::vector<SimFault> faults(random.below(faults_max + 1));
    SimTime last{0};
    for (SimFault& fault : faults) {
        // A third of them come right after another: during its recovery, or before it is noticed.
        const bool close = random.chance(33);
        fault.at = close ? last + random.log_uniform(SimTime{1'000}, 100 * kMilli)
                         : random.uniform(SimTime{0}, until);
        fault.at = std::min(fault.at, until);
        last = fault.at;
        fault.kind = kKinds[random.below(kKinds.size())];
        fault.process = processes[random.below(processes.size())];
        fault.count = static_cast<std::uint32_t>(1 + random.below(random.chance(50) ? 5 : 60));
        fault.lasts = random.log_uniform(SimTime{1'000}, 10 * kSecond);
        if (fault.kind == SimFaultKind::StallEdges || fault.kind == SimFaultKind::Slow) {
            fault.lasts = random.log_uniform(kMilli, kSecond);
        }
    }
    return faults;
}

}  // namespace paceline::testing

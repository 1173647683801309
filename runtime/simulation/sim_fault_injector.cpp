#include "runtime/simulation/sim_fault_injector.hpp"

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

constexpr SimTime kSecond{1'000'000'000};

}  // namespace

void SimFaultInjector::add(const std::vector<SimFault>& faults) {
    PACE_CHECK(!site_.stages.share_devices(), "shared devices are of worlds without faults");
    for (const SimFault& fault : faults) {
        site_.core.push(fault.at, SimEventKind::Fault, 0, faults_.size());
        faults_.push_back(fault);
    }
}

void SimFaultInjector::strike(std::size_t number) {
    const SimFault& fault = faults_[number];
    SimCore& core = site_.core;
    SimStage& hit = site_.stages.stage(fault.process);
    SimProcess& process = site_.stages.at(hit);
    core.tell([&] { return "fault: " + describe(fault); });
    switch (fault.kind) {
        case SimFaultKind::Crash:
            process.die({"crashed"});
            break;
        case SimFaultKind::CrashInHandler:
            process.faults.crash_after_sends(fault.count);
            break;
        case SimFaultKind::CrashAtStart:
            hit.dies_at_start = fault.lasts;
            break;
        case SimFaultKind::Freeze:
            freeze(process, fault.lasts);
            break;
        case SimFaultKind::OutOfMemory:
            process.faults.fail_allocation(fault.count);
            break;
        case SimFaultKind::Slow:
            process.faults.slow_down(100, core.now + fault.lasts);
            break;
        case SimFaultKind::FalseSuspicion:
            process.self.push(core.now, SimEventKind::Suspicion);
            break;
        case SimFaultKind::Linger: {
            const SimTime frozen = 2 * SimTime{site_.options.hang_limit} + fault.lasts;
            freeze(process, frozen);
            hit.lingers = frozen + kSecond;
            break;
        }
        case SimFaultKind::StallEdges:
            stall_edges(fault.lasts);
            break;
    }
}

void SimFaultInjector::freeze(SimProcess& process, SimTime lasts) {
    const SimTime now = site_.core.now;
    process.faults.freeze(now + lasts);
    process.self.push(now + SimTime{site_.options.hang_limit}, SimEventKind::Hung,
                      process.faults.freezes());
}

void SimFaultInjector::stall_edges(SimTime lasts) {
    SimCore& core = site_.core;
    const auto stall_some = [&](const SimProcess& process) {
        for (const SimEdges::Out& out : process.edges.out()) {
            if (!core.random.chance(40)) continue;
            out.channel->stall(core.now + core.random.uniform(SimTime{0}, lasts));
        }
    };
    stall_some(site_.stages.conductor());
    for (const SimStage& each : site_.stages.all()) stall_some(site_.stages.at(each));
}

}  // namespace paceline

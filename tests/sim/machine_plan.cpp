#include "tests/sim/machine_plan.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "tests/sim/sim_scenario.hpp"

namespace paceline::testing {
namespace {

constexpr SimTime kMilli{1'000'000};
constexpr SimTime kSecond{1'000'000'000};
using Kind = SimMachineFaultKind;

SimMachineFault draw_fault(SimRandom& random, const SimMachinePlan& plan, SimTime until) {
    // As often as they are listed.
    static constexpr std::array kKinds{
        Kind::PowerLoss, Kind::PowerLoss, Kind::AgentDies, Kind::AgentDies, Kind::CutBoth,
        Kind::CutBoth,   Kind::CutUp,     Kind::CutDown,   Kind::Freeze,    Kind::Suspend};
    SimMachineFault fault;
    fault.kind = kKinds[random.below(kKinds.size())];
    fault.at = random.uniform(SimTime{0}, until);
    fault.machine = static_cast<std::uint32_t>(1 + random.below(plan.others + plan.spares));
    // Shorter than the lease, about as long, or longer.
    const SimTime lease = plan.lease.length;
    switch (random.below(3)) {
        case 0:
            fault.lasts = random.log_uniform(kMilli, lease / 2);
            break;
        case 1:
            fault.lasts = random.uniform(lease / 2, lease + 2 * SimTime{plan.lease.margin});
            break;
        default:
            fault.lasts = random.log_uniform(lease, 30 * kSecond);
    }
    fault.is_back = random.chance(80);
    return fault;
}

bool is_loss(const SimMachineFault& fault) {
    return fault.kind == Kind::PowerLoss || fault.kind == Kind::AgentDies;
}

SimTime end_of(const SimMachineFault& fault) {
    // It is connected anew after another fault.
    if (fault.kind == Kind::CutAtHello) return fault.at + 60 * kSecond;
    return fault.at + (is_loss(fault) && !fault.is_back ? SimTime{0} : fault.lasts);
}

}  // namespace

void add_machines(std::uint64_t seed, SimScenario& scenario) {
    SimRandom random{seed ^ 0x3ac41e5ULL};
    SimMachinePlan& plan = scenario.machines;
    plan.others = static_cast<std::uint32_t>(1 + random.below(2));
    plan.spares = random.chance(30) ? 1 : 0;
    if (random.chance(50)) {
        plan.lease.length = kSecond;
        plan.lease.margin = kSecond;
        plan.lease.ask_interval = 100 * kMilli;
    }
    plan.delay = random.log_uniform(SimTime{10'000}, 50 * kMilli);
    scenario.restarts.machine_wait = Micros{random.chance(50) ? 60'000'000 : 15'000'000};
    // A give-up then says something of machines.
    scenario.restarts.start_limit = std::max(scenario.restarts.start_limit, Micros{30'000'000});
    for (SimProcessSpec& spec : scenario.processes)
        spec.process.node = static_cast<std::uint32_t>(random.below(plan.others + 1));
    // One of them is elsewhere.
    scenario.processes[random.below(scenario.processes.size())].process.node =
        static_cast<std::uint32_t>(1 + random.below(plan.others));
    if (random.chance(40)) scenario.faults.clear();
    for (std::uint64_t i = random.chance(10) ? 0 : 1 + random.below(3); i > 0; --i)
        plan.faults.push_back(draw_fault(random, plan, std::min(scenario.faults_end, kSecond)));
    if (!plan.faults.empty() && random.chance(25)) {
        SimMachineFault late = draw_fault(random, plan, kMilli);
        late.kind = Kind::CutAtHello;
        late.lasts = random.uniform(SimTime{0}, SimTime{plan.lease.length + plan.lease.margin});
        plan.faults.push_back(late);
    }
    for (const SimMachineFault& fault : plan.faults)
        scenario.faults_end = std::max(scenario.faults_end, end_of(fault));
}

bool is_harmless(const SimMachinePlan& plan) {
    SimTime sum = 2 * SimTime{plan.lease.ask_interval} + 4 * plan.delay + 100 * kMilli;
    for (const SimMachineFault& fault : plan.faults) {
        if (is_loss(fault)) return false;
        sum += fault.lasts;
    }
    return sum < SimTime{plan.lease.length};
}

SimTime aftermath(const SimScenario& scenario) {
    const SimMachinePlan& plan = scenario.machines;
    const SimTime lease = SimTime{plan.lease.length} + SimTime{plan.lease.margin};
    return 2 * lease + SimTime{scenario.restarts.machine_wait} + 10 * kSecond;
}

bool all_come_back(const SimScenario& scenario) {
    const SimMachinePlan& plan = scenario.machines;
    SimTime first = SimTime::max();
    SimTime last{0};
    for (const SimMachineFault& fault : plan.faults) {
        if (is_loss(fault) && !fault.is_back) return false;
        first = std::min(first, fault.at);
        last = std::max(last, end_of(fault));
    }
    const SimTime lease = SimTime{plan.lease.length} + SimTime{plan.lease.margin};
    const SimTime takes = last - first + 2 * lease + scenario.timing.load_max + 10 * kSecond;
    return plan.faults.empty() || takes < SimTime{scenario.restarts.machine_wait};
}

}  // namespace paceline::testing

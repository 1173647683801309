#include "runtime/simulation/machines/sim_machines.hpp"

#include "runtime/simulation/sim_stages.hpp"

namespace paceline {

SimMachines::SimMachines(SimSite& site)
    : site_{site},
      later_{site.core},
      places_{site, later_,
              [this](const SimPlaces::Agent& agent, const SimLinePtr& line) {
                  agents_.closed(agent, line);
              }},
      agents_{site, later_, places_} {}

void SimMachines::begin() {
    agents_.begin();
    for (const SimMachineFault& fault : site_.options.machines.faults)
        later_.at(fault.at, [this, &fault] { strike(fault); });
}

void SimMachines::strike(const SimMachineFault& fault) {
    using Kind = SimMachineFaultKind;
    SimCore& core = site_.core;
    core.tell([&] { return "fault: " + describe(fault); });
    const SimTime until = core.now + fault.lasts;
    switch (fault.kind) {
        case Kind::PowerLoss:
        case Kind::AgentDies:
            agents_.die(fault.machine, fault.kind == Kind::AgentDies);
            if (!fault.is_back) return;
            return later_.at(until, [this, &fault] { agents_.boot(fault.machine); });
        case Kind::CutBoth:
            return agents_.cut(fault.machine, true, true, until);
        case Kind::CutUp:
            return agents_.cut(fault.machine, true, false, until);
        case Kind::CutDown:
            return agents_.cut(fault.machine, false, true, until);
        case Kind::CutAtHello:
            return agents_.cut_at_hello(fault.machine, fault.lasts);
        case Kind::Freeze:
            return agents_.freeze(fault.machine, until, false);
        case Kind::Suspend:
            return agents_.freeze(fault.machine, until, true);
    }
}

std::optional<std::string> SimMachines::leftovers() const {
    for (const auto& process : site_.stages.incarnations()) {
        const SimLinePtr& line = process->self.line;
        if (process->ended() || !line || (!line->conductor_end && !line->agent_end)) continue;
        return process->self.title() + " still runs on a machine that was lost";
    }
    const SimMachinePlan& plan = site_.options.machines;
    std::uint32_t free = 0;
    for (std::uint32_t node = 1; node <= plan.others; ++node) free += line_of(node) ? 0 : 1;
    std::uint32_t alive = 0;
    for (std::uint32_t i = 1; i <= plan.others + plan.spares; ++i)
        alive += agents_.is_alive(i) ? 1 : 0;
    if (free == 0 || alive + free <= plan.others) return std::nullopt;
    return "a place is free, and a machine without stages does not take it";
}

}  // namespace paceline

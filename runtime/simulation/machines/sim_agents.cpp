#include "runtime/simulation/machines/sim_agents.hpp"

#include <algorithm>
#include <utility>

#include "runtime/simulation/sim_loop.hpp"
#include "runtime/simulation/sim_stages.hpp"

namespace paceline {
namespace {

/// An agent looks at its lease as often.
constexpr SimTime kRound{10'000'000};
/// After a refusal it is started anew.
constexpr SimTime kStartAgain{1'000'000'000};

}  // namespace

SimAgents::SimAgents(SimSite& site, SimLater& later, SimPlaces& places)
    : site_{site}, later_{later}, places_{places}, plan_{site.options.machines} {
    machines_.resize(plan_.others + plan_.spares);
    for (std::size_t i = 0; i < machines_.size(); ++i)
        machines_[i].number = static_cast<std::uint32_t>(i + 1);
}

void SimAgents::begin() {
    for (Machine& machine : machines_) say_hello(machine);
}

// ---- connecting ----

SimTime SimAgents::unreachable(const Machine& machine) {
    return std::max({machine.up_cut, machine.down_cut, machine.frozen});
}

void SimAgents::dial(std::uint32_t number, std::uint32_t session, SimTime after) {
    const SimTime begins = std::max(after, unreachable(at(number)));
    const SimTime takes = site_.core.random.uniform(plan_.retry / 4, 2 * plan_.retry);
    later_.at(begins + takes, [this, number, session] { connect(number, session); });
}

void SimAgents::connect(std::uint32_t number, std::uint32_t session) {
    Machine& machine = at(number);
    if (!machine.alive || machine.session != session || machine.line) return;
    if (unreachable(machine) > site_.core.now) return dial(number, session, site_.core.now);
    say_hello(machine);
}

void SimAgents::say_hello(Machine& machine) {
    machine.line = std::make_shared<SimLine>(0, plan_.delay);
    const SimLinePtr line = machine.line;
    const SimPlaces::Agent self{machine.number, machine.session};
    const SimTime said = clock(machine);
    if (site_.core.now == SimTime{0}) {  // the run begins when all are there
        (void)places_.hello(self, line);
        return greeted(self.machine, line, said);
    }
    later_.along(line, SimWay::Up, [this, self, line, said] {
        if (const auto lasts = std::exchange(at(self.machine).hello_cut, std::nullopt)) {
            const SimTime answer = site_.core.now + *lasts;
            cut(self.machine, false, true, answer);
            cut(self.machine, true, false, answer + 2 * SimTime{plan_.lease.length});
        }
        if (!places_.hello(self, line)) {
            line->conductor_end = site_.core.now;
            later_.along(line, SimWay::Down, [this, self, line] {
                Machine& refused = at(self.machine);
                if (refused.line != line) return;
                line->agent_end = site_.core.now;
                refused.line.reset();
                dial(self.machine, refused.session, site_.core.now + kStartAgain);
            });
            return;
        }
        later_.along(line, SimWay::Down,
                     [this, self, line, said] { greeted(self.machine, line, said); });
    });
}

void SimAgents::greeted(std::uint32_t number, const SimLinePtr& line, SimTime said_hello) {
    Machine& machine = at(number);
    if (machine.line != line) return;
    machine.lease.emplace(plan_.lease, said_hello);
    line->served = !machine.lease->is_over(clock(machine));  // or it leaves at once
    round(number, line);
}

// ---- serving ----

void SimAgents::round(std::uint32_t number, const SimLinePtr& line) {
    Machine& machine = at(number);
    if (machine.line != line || !machine.lease) return;
    const auto again = [this, number, line] { round(number, line); };
    if (machine.frozen > site_.core.now) {
        // Its stages go on at once; it looks at the clock a little later.
        return later_.at(machine.frozen + site_.core.random.uniform(SimTime{0}, kRound), again);
    }
    const SimTime now = clock(machine);
    if (machine.lease->is_over(now)) return end_session(machine, "nothing came from the conductor");
    ask(machine, line);
    const SimTime left = machine.lease->end() - now;
    later_.at(site_.core.now + std::min<SimTime>(plan_.lease.ask_interval, left), again);
}

void SimAgents::ask(Machine& machine, const SimLinePtr& line) {
    const std::optional<LeaseHolder::Ask> due = machine.lease->ask(clock(machine));
    if (!due) return;
    later_.along(line, SimWay::Up, [this, number = machine.number, line, asked = *due] {
        if (!places_.ask(line)) return;
        later_.along(line, SimWay::Down, [this, number, line, asked] {
            Machine& holder = at(number);
            if (holder.line == line && holder.lease)
                holder.lease->granted(asked.number, asked.asked, plan_.lease.length);
        });
    });
}

void SimAgents::closed(const SimPlaces::Agent& agent, const SimLinePtr& line) {
    Machine& machine = at(agent.machine);
    if (machine.line == line) end_session(machine, "the conductor has closed the connection");
}

/// Its stages are killed and reaped before it closes the connection and dials anew.
void SimAgents::end_session(Machine& machine, const std::string& why) {
    const std::uint32_t number = machine.number;
    site_.core.tell([&] { return "machine " + std::to_string(number) + " ends: " + why; });
    const SimLinePtr line = std::exchange(machine.line, {});
    machine.lease.reset();
    line->agent_end = site_.core.now;
    const SimTime reaped = kill_stages(line);
    later_.at(reaped, [this, line] {
        later_.along(line, SimWay::Up, [this, line] { places_.lost(line, "its agent left"); });
    });
    dial(number, machine.session, reaped);
}

SimTime SimAgents::kill_stages(const SimLinePtr& line) {
    SimTime reaped = site_.core.now;
    for (const auto& process : site_.stages.incarnations()) {
        if (process->ended() || process->self.line != line) continue;
        // Before it serves none has been started.
        const SimTime takes = line->served ? site_.timing.kill(site_.core.random) : SimTime{0};
        const SimTime dies = site_.core.now + takes;
        reaped = std::max(reaped, dies);
        later_.at(dies, [killed = process.get()] {
            killed->die({.how = "was killed by its agent", .unseen = true});
        });
    }
    return reaped;
}

// ---- what happens to it ----

void SimAgents::die(std::uint32_t number, bool says_so) {
    Machine& machine = at(number);
    machine.alive = false;
    ++machine.session;
    const SimLinePtr line = std::exchange(machine.line, {});
    machine.lease.reset();
    if (!line) return;
    line->agent_end = site_.core.now;
    for (const auto& process : site_.stages.incarnations()) {
        if (!process->ended() && process->self.line == line)
            process->die({.how = "is gone with its machine", .unseen = true});
    }
    if (!says_so) return;
    later_.along(line, SimWay::Up, [this, line] { places_.lost(line, "its agent has died"); });
}

void SimAgents::boot(std::uint32_t number) {
    Machine& machine = at(number);
    if (machine.alive) return;
    machine.alive = true;
    machine.clock_behind = SimTime{0};
    dial(number, machine.session, site_.core.now);
}

void SimAgents::cut(std::uint32_t number, bool up, bool down, SimTime until) {
    Machine& machine = at(number);
    if (up) machine.up_cut = std::max(machine.up_cut, until);
    if (down) machine.down_cut = std::max(machine.down_cut, until);
    if (!machine.line) return;
    if (up) machine.line->up_held = std::max(machine.line->up_held, until);
    if (down) machine.line->down_held = std::max(machine.line->down_held, until);
}

void SimAgents::freeze(std::uint32_t number, SimTime until, bool clock_stops) {
    Machine& machine = at(number);
    if (until <= machine.frozen) return;
    const SimTime gap = until - std::max(site_.core.now, machine.frozen);
    machine.frozen = until;
    // Before what was held arrives, and before its processes go on.
    later_.at(until, [this, number, gap, clock_stops] { thaw(number, gap, clock_stops); });
    if (!machine.line) return;
    machine.line->was_frozen = true;
    machine.line->up_held = std::max(machine.line->up_held, until);
    machine.line->down_held = std::max(machine.line->down_held, until);
    for (const auto& process : site_.stages.incarnations()) {
        if (!process->ended() && process->self.line == machine.line) process->suspend(until, gap);
    }
}

/// As the agent notices by its own late look.
void SimAgents::thaw(std::uint32_t number, SimTime gap, bool clock_stopped) {
    Machine& machine = at(number);
    if (clock_stopped) machine.clock_behind += gap;
    for (SimStage& stage : site_.stages.all()) {
        if (machine.line && site_.stages.at(stage).self.line == machine.line)
            stage.watch.paused(site_.core.now, gap);
    }
}

}  // namespace paceline

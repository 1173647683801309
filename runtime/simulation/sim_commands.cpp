#include "runtime/simulation/sim_commands.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "runtime/simulation/sim_loop.hpp"

namespace paceline {
namespace {

/// When the order to start it is on its machine.
SimTime start_arrives(const SimProcess& process) {
    const SimLinePtr& line = process.self.line;
    if (process.self.spec.process.node == 0) return process.self.now();
    return line ? line->arrival(SimWay::Down, process.self.now() + line->delay) : kSimNever;
}

}  // namespace

void SimCommands::carry_out(const Recovery::Kill& kill) {
    SimCore& core = site_.core;
    SimProcess& process = site_.stages.at(site_.stages.stage(kill.id));
    core.tell([&] { return "kill " + process.self.title(); });
    if (process.ended()) return;  // Gone is on its way
    const SimLinePtr& line = process.self.line;
    if (line && !line->takes(SimWay::Down)) return;  // its agent kills it
    const SimTime dies = core.now + site_.timing.kill(core.random);
    process.self.push(line ? dies + line->delay : dies, SimEventKind::Die);
}

void SimCommands::reach(SimProcess& killed) {
    if (killed.ended()) return;
    if (const SimLinePtr& line = killed.self.line) {
        const SimTime arrives = line->arrival(SimWay::Down, site_.core.now);
        if (arrives == kSimNever) return;  // its agent kills it
        if (arrives > site_.core.now) return killed.self.push(arrives, SimEventKind::Die);
    }
    SimStage& home = site_.stages.stage(killed.self.id());
    if (!home.lingers || home.serial != killed.self.serial) return killed.die({"was killed"});
    // It cannot be reached, so it counts as gone, but it is not.
    site_.core.tell([&] { return killed.self.title() + " lingers"; });
    killed.faults.linger();
    killed.self.push(site_.core.now, SimEventKind::Gone);
    killed.self.push(site_.core.now + *home.lingers, SimEventKind::Die);
    home.lingers.reset();
}

void SimCommands::carry_out(const Recovery::Spawn& spawn) {
    SimCore& core = site_.core;
    SimStage& home = site_.stages.stage(spawn.id);
    const SimProcess& last = site_.stages.at(home);
    if (spawn.epoch <= home.newest) {
        core.violate(fmt::format("an incarnation of stage '{}' in epoch {} follows one in epoch {}",
                                 home.spec.process.name, spawn.epoch.value, home.newest.value));
    }
    home.newest = spawn.epoch;
    // On a machine that stood still it may be behind a connection that is closed; on one that the
    // answer to its Hello has not reached yet it was never started.
    const SimLinePtr& behind = last.self.line;
    const bool fenced = behind && behind->conductor_end && (behind->was_frozen || !behind->served);
    if (!last.ended() && !last.faults.lingers() && !fenced) {
        core.violate("a second incarnation of stage '" + home.spec.process.name + "' while " +
                     last.self.title() + " is alive");
    }
    const JobRecords before =
        inherited_jobs(last.telemetry.block, home.hung, site_.options.restarts.start_limit);
    SimProcess& process = site_.stages.make(site_, home.spec, spawn.epoch, before);
    home.watch = StageWatch{std::chrono::milliseconds{0}};
    home.hung = false;
    home.serial = process.self.serial;
    home.survivors.clear();
    core.tell([&] { return "spawn " + process.self.title(); });
    const SimTime begins = start_arrives(process);
    // It is lost with its machine: NodeRoll says so.
    if (begins == kSimNever) return process.die({.how = "was not started", .unseen = true});
    process.load(begins - core.now + site_.timing.load(spawn.id, core.random));
    if (!home.dies_at_start) return;
    process.self.push(core.now + *home.dies_at_start, SimEventKind::Die);
    home.dies_at_start.reset();
}

void SimCommands::carry_out(const Recovery::Lost& lost) {
    const ProcessSpec& process = site_.stages.stage(lost.id).spec.process;
    site_.core.tell([&] { return "lost " + process.name + ": " + lost.why; });
    site_.stages.conductor().receive(SimUnwire{process.actors});
}

void SimCommands::carry_out(const Recovery::Unwire& unwire) {
    SimStages& stages = site_.stages;
    const SimUnwire message{stages.stage(unwire.id).spec.process.actors};
    stages.conductor().receive(message);
    for (const StageId survivor : unwire.survivors)
        stages.at(stages.stage(survivor)).receive(message);
}

void SimCommands::carry_out(const Recovery::Join& join) {
    SimStages& stages = site_.stages;
    SimStage& home = stages.stage(join.id);
    SimProcess& newcomer = stages.at(home);
    const std::vector<StageId>& actors = home.spec.process.actors;
    SimWire wire{stages.connect(newcomer, stages.conductor()), {}};
    stages.conductor().receive(SimRewire{actors, join.epoch, wire.channels});
    for (const SimStage& other : stages.all()) {
        if (other.spec.process.id == join.id) continue;
        const auto& peers = other.spec.process.actors;
        if (std::find(join.survivors.begin(), join.survivors.end(), other.spec.process.id) ==
            join.survivors.end()) {
            wire.absent.insert(wire.absent.end(), peers.begin(), peers.end());
            continue;
        }
        const SimChannels shared = stages.connect(newcomer, stages.at(other));
        if (shared.empty()) wire.absent.insert(wire.absent.end(), peers.begin(), peers.end());
        wire.channels.insert(wire.channels.end(), shared.begin(), shared.end());
        stages.at(other).receive(SimRewire{actors, join.epoch, shared});
        if (!shared.empty()) home.survivors.push_back(other.serial);
    }
    site_.core.tell([&] { return "join " + newcomer.self.title(); });
    newcomer.receive(std::move(wire));
}

/// Joined is a promise: the new incarnation and all that live have their channels.
void SimCommands::check_joined(const SimStage& home) {
    SimProcess& newcomer = site_.stages.at(home);
    const std::string claim = "Joined is said of " + newcomer.self.title();
    if (!newcomer.ended() && !newcomer.loop().is_running())
        return site_.core.violate(claim + ", which has no channels yet");
    for (const std::uint32_t serial : home.survivors) {
        const SimProcess& survivor = site_.stages.process(serial);
        if (survivor.ended() || !site_.stages.is_current(survivor)) continue;
        const StageHealth health = recovery_.health_of(survivor.self.id());
        if (health != StageHealth::Up && health != StageHealth::Wiring) continue;
        if (survivor.edges.are_with(newcomer.self.serial)) continue;
        return site_.core.violate(claim + " before " + survivor.self.title() + " has its channels");
    }
}

void SimCommands::carry_out(const Recovery::Joined& joined) {
    const SimStage& home = site_.stages.stage(joined.id);
    site_.core.tell([&] { return "joined " + site_.stages.at(home).self.title(); });
    check_joined(home);
    site_.stages.conductor().receive(SimJoined{home.spec.process.actors});
}

void SimCommands::carry_out(const Recovery::Disabled& disabled) {
    site_.core.tell([&] { return "disabled: " + disabled.why; });
}

void SimCommands::carry_out(const Recovery::GiveUp& give_up) {
    site_.core.tell([&] { return "gave up: " + give_up.error.what; });
    site_.core.give_up(give_up.error);
}

}  // namespace paceline

// The simulated supervisor: carries out on simulated processes what Recovery commands, as
// supervisor.cpp does on real ones.
#include <algorithm>
#include <fmt/core.h>
#include <variant>

#include "runtime/loop/control_port.hpp"
#include "runtime/simulation/sim_world.hpp"

namespace paceline {
namespace {

/// A time that will not come within a run.
constexpr Micros kNever{1'000'000'000'000};

}  // namespace

void SimWorld::obey() {
    while (auto command = recovery_->next()) {
        std::visit([this](const auto& order) { carry_out(order); }, *command);
    }
    const std::optional<Micros> due = recovery_->due();
    if (!due || *due > kNever || SimTime{*due} >= tick_at_) return;
    tick_at_ = SimTime{*due};
    core_.push(tick_at_, SimEventKind::Tick, 0);
}

void SimWorld::carry_out(const Recovery::Kill& kill) {
    core_.tell([&] { return "kill " + at(stage(kill.id)).title(); });
    SimProcess& process = at(stage(kill.id));
    if (process.ended()) return;  // Gone is on its way
    core_.push(core_.now + timing.kill(core_.random), SimEventKind::Die, process.serial());
}

/// A kill reaches its process.
void SimWorld::die(std::uint32_t serial) {
    SimProcess& killed = process(serial);
    if (killed.ended()) return;
    Stage& home = stage(killed.id());
    if (home.lingers && home.serial == serial) {
        // It cannot be reached, so it counts as gone, but it is not.
        core_.tell([&] { return killed.title() + " lingers"; });
        lingering_.insert(serial);
        core_.push(core_.now, SimEventKind::Gone, serial);
        core_.push(core_.now + *home.lingers, SimEventKind::Die, serial);
        home.lingers.reset();
        return;
    }
    killed.die("was killed");
}

void SimWorld::carry_out(const Recovery::Spawn& spawn) {
    Stage& home = stage(spawn.id);
    if (spawn.epoch <= home.newest) {
        violate(fmt::format("an incarnation of stage '{}' in epoch {} follows one in epoch {}",
                            home.spec.process.name, spawn.epoch.value, home.newest.value));
    }
    home.newest = spawn.epoch;
    if (!at(home).ended() && !lingering_.contains(home.serial)) {
        violate("a second incarnation of stage '" + home.spec.process.name + "' while " +
                at(home).title() + " is alive");
    }
    JobRecords before{};
    if (const SimJobs* jobs = at(home).jobs()) {
        before = inherited_jobs(jobs->snapshot(), home.hung, options_.restarts.start_limit);
    }
    SimProcess& process = make_process(home.spec, spawn.epoch, before);
    home.watch = StageWatch{std::chrono::milliseconds{0}};
    home.hung = false;
    home.serial = process.serial();
    home.survivors.clear();
    core_.tell([&] { return "spawn " + process.title(); });
    process.load(timing.load(spawn.id, core_.random));
    if (!home.dies_at_start) return;
    core_.push(core_.now + *home.dies_at_start, SimEventKind::Die, process.serial());
    home.dies_at_start.reset();
}

void SimWorld::carry_out(const Recovery::Lost& lost) {
    core_.tell([&] { return "lost " + stage(lost.id).spec.process.name + ": " + lost.why; });
    to_conductor(SimUnwire{stage(lost.id).spec.process.actors});
}

void SimWorld::carry_out(const Recovery::Unwire& unwire) {
    const SimUnwire message{stage(unwire.id).spec.process.actors};
    to_conductor(message);
    for (const StageId survivor : unwire.survivors) at(stage(survivor)).receive(message);
}

SimChannels SimWorld::connect(SimProcess& one, SimProcess& other) const {
    SimChannels channels;
    const auto hosts = [](const SimProcess& process, StageId actor) {
        const auto& actors = process.spec().process.actors;
        return std::find(actors.begin(), actors.end(), actor) != actors.end();
    };
    const auto end_of = [](const SimProcess& process) {
        return SimChannel::End{process.serial(), process.epoch()};
    };
    for (const EdgeSpec& edge : edges_) {
        if (hosts(one, edge.from) && hosts(other, edge.to)) {
            channels.push_back(std::make_shared<SimChannel>(edge, end_of(one), end_of(other)));
        } else if (hosts(other, edge.from) && hosts(one, edge.to)) {
            channels.push_back(std::make_shared<SimChannel>(edge, end_of(other), end_of(one)));
        }
    }
    return channels;
}

void SimWorld::carry_out(const Recovery::Join& join) {
    Stage& home = stage(join.id);
    SimProcess& newcomer = at(home);
    const std::vector<StageId>& actors = home.spec.process.actors;
    SimWire wire{connect(newcomer, conductor()), {}};
    to_conductor(SimRewire{actors, join.epoch, wire.channels});
    for (const Stage& other : stages_) {
        if (other.spec.process.id == join.id) continue;
        const auto& peers = other.spec.process.actors;
        if (std::find(join.survivors.begin(), join.survivors.end(), other.spec.process.id) ==
            join.survivors.end()) {
            wire.absent.insert(wire.absent.end(), peers.begin(), peers.end());
            continue;
        }
        const SimChannels shared = connect(newcomer, at(other));
        if (shared.empty()) wire.absent.insert(wire.absent.end(), peers.begin(), peers.end());
        wire.channels.insert(wire.channels.end(), shared.begin(), shared.end());
        at(other).receive(SimRewire{actors, join.epoch, shared});
        if (!shared.empty()) home.survivors.push_back(other.serial);
    }
    core_.tell([&] { return "join " + newcomer.title(); });
    newcomer.receive(std::move(wire));
}

/// Joined is a promise: the new incarnation and all that live have their channels.
void SimWorld::check_joined(const Stage& home) {
    SimProcess& newcomer = at(home);
    if (!newcomer.ended() && newcomer.life() != SimProcess::Life::Running) {
        return violate("Joined is said of " + newcomer.title() + ", which has no channels yet");
    }
    for (const std::uint32_t serial : home.survivors) {
        const SimProcess& survivor = process(serial);
        if (survivor.ended() || !is_current(survivor)) continue;
        const StageHealth health = recovery_->health_of(survivor.id());
        if (health != StageHealth::Up && health != StageHealth::Wiring) continue;
        if (survivor.wired_to(newcomer.serial())) continue;
        return violate("Joined is said of " + newcomer.title() + " before " + survivor.title() +
                       " has its channels");
    }
}

void SimWorld::carry_out(const Recovery::Joined& joined) {
    const Stage& home = stage(joined.id);
    core_.tell([&] { return "joined " + at(home).title(); });
    check_joined(home);
    to_conductor(SimJoined{home.spec.process.actors});
}

void SimWorld::carry_out(const Recovery::Disabled& disabled) {
    core_.tell([&] { return "disabled: " + disabled.why; });
}

void SimWorld::carry_out(const Recovery::GiveUp& give_up) {
    core_.tell([&] { return "gave up: " + give_up.error.what; });
    if (!gave_up_) gave_up_ = give_up.error;
}

/// Tells the rules of recovery something about an incarnation. If it is an old one, it must change
/// nothing.
template <class News>
void SimWorld::inform(const SimProcess& about, News news) {
    const StageId id = about.id();
    const bool is_news = is_current(about);
    const StageHealth health = recovery_->health_of(id);
    const Epoch epoch = recovery_->epoch_of(id);
    news(*recovery_);
    if (is_news || (health == recovery_->health_of(id) && epoch == recovery_->epoch_of(id))) return;
    violate("news of " + about.title() + ", which has been replaced, changed what is thought of " +
            at(stage(id)).title());
}

void SimWorld::suspect(const SimProcess& whom, const std::string& why) {
    inform(whom, [&](Recovery& recovery) {
        recovery.suspect(whom.id(), whom.epoch(), whom.title() + why, core_.micros());
    });
}

void SimWorld::notice_end(const SimProcess& whom) {
    inform(whom, [&](Recovery& recovery) {
        recovery.gone(whom.id(), whom.epoch(), whom.exit_report(), core_.micros());
    });
}

/// A report has reached the conductor's process.
void SimWorld::take_report(SimProcess& from) {
    SimReport report = from.take_report();
    const Micros now = core_.micros();
    inform(from, [&](Recovery& recovery) {
        if (std::holds_alternative<SimHello>(report)) {
            recovery.greeted(from.id(), from.epoch(), now);
        } else if (std::holds_alternative<SimReady>(report)) {
            recovery.ready(from.id(), from.epoch(), now);
        } else if (const auto* rewired = std::get_if<SimRewired>(&report)) {
            recovery.rewired(from.id(), rewired->peer, rewired->epoch, now);
        } else if (const auto* failed = std::get_if<SimFailed>(&report)) {
            recovery.suspect(from.id(), from.epoch(), failed->error.what, now);
        }
    });
    if (!is_current(from)) return;
    if (const auto* fault = std::get_if<SimEdgeFault>(&report)) return report_fault(*fault);
    auto* mail = std::get_if<SimMail>(&report);
    if (mail == nullptr) return;
    if (const auto* wanted = std::get_if<control::BeginWanted>(&mail->message)) {
        asked_.insert({from.serial(), mail->from, wanted->request});
    }
    to_conductor(std::move(*mail));
}

/// No fault of a scenario changes a message: what is reported is a bug.
void SimWorld::report_fault(const SimEdgeFault& fault) {
    violate(fmt::format("a message that no stage may send: {}", fault.error.what));
    recovery_->suspect(home_of(fault.peer).spec.process.id, fault.epoch, fault.error.what,
                       core_.micros());
}

}  // namespace paceline

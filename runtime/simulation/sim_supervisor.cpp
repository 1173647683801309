#include "runtime/simulation/sim_supervisor.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>
#include <variant>

#include "runtime/loop/control_port.hpp"
#include "runtime/simulation/machines/sim_machines.hpp"
#include "runtime/simulation/shared_device.hpp"
#include "runtime/simulation/sim_loop.hpp"

namespace paceline {
namespace {

/// A time that will not come within a run.
constexpr Micros kNever{1'000'000'000'000};
/// Between two looks at a stage that is late.
constexpr SimTime kLook{10'000'000};

}  // namespace

void SimSupervisor::handle(const SimEvent& event) {
    SimProcess& who = stages.process(event.who);
    if (is_held(event, who)) return;
    switch (event.kind) {
        case SimEventKind::Die:
            return commands_.reach(who);
        case SimEventKind::ControlUp:
            return take_report(who);
        case SimEventKind::Overdue:
            return look_for_hang(who);
        case SimEventKind::Hung:
            if (who.ended() || !who.faults.is_frozen() || who.faults.freezes() != event.data)
                return;
            return suspect(who, " hangs");
        case SimEventKind::Gone:
            if (who.self.line) machines->places().ended(who);
            return inform(who, [&] {
                recovery_.gone(who.self.id(), who.self.epoch, who.exit_report(), core.micros());
            });
        case SimEventKind::Suspicion:
            return suspect(who, " is suspected");
        case SimEventKind::Tick:
            tick_at_ = SimTime::max();
            return recovery_.tick(core.micros());
        case SimEventKind::Step:
        case SimEventKind::JobDone:
        case SimEventKind::Thaw:
        case SimEventKind::Loaded:
        case SimEventKind::Fault:
        case SimEventKind::Call:
        case SimEventKind::Machine:
            return;  // of processes, of the plan and of machines
    }
}

/// What another machine reports takes the line to it: it may come later, or never.
bool SimSupervisor::is_held(const SimEvent& event, SimProcess& who) {
    const SimLinePtr& line = who.self.line;
    const bool is_local = event.kind == SimEventKind::Die || event.kind == SimEventKind::Tick;
    if (!line || is_local) return false;
    const SimTime arrives = line->arrival(SimWay::Up, core.now);
    if (arrives <= core.now && machines->places().accepts(who)) return false;
    if (arrives != kSimNever && arrives > core.now) {
        core.push(arrives, event.kind, event.who, event.data);
    } else if (event.kind == SimEventKind::ControlUp) {
        (void)who.connection.take_report();
    }
    return true;
}

void SimSupervisor::obey() {
    while (auto command = recovery_.next())
        std::visit([this](const auto& order) { commands_.carry_out(order); }, *command);
    const std::optional<Micros> due = recovery_.due();
    if (!due || *due > kNever || SimTime{*due} >= tick_at_) return;
    tick_at_ = SimTime{*due};
    core.push(tick_at_, SimEventKind::Tick, 0);
}

void SimSupervisor::check_conductor() {
    const ActorHost& host = stages.conductor().loop().host();
    if (!host.ended()) return;
    const Status outcome = host.outcome();
    if (!outcome.ok()) core.violate("the conductor failed: " + outcome.error().what);
    core.give_up(outcome.ok() ? Error{Errc::Cancelled, "left"} : outcome.error());
}

void SimSupervisor::paused(SimTime gap) {
    for (SimStage& each : stages.all()) each.watch.paused(core.now, gap);
    recovery_.paused(std::chrono::duration_cast<Micros>(gap), core.micros());
}

bool SimSupervisor::all_up() const {
    return std::all_of(stages.all().begin(), stages.all().end(), [this](const SimStage& each) {
        const StageHealth health = recovery_.health_of(each.spec.process.id);
        return health == StageHealth::Up || health == StageHealth::Disabled;
    });
}

SimProcess* SimSupervisor::current(StageId id) {
    const StageHealth health = recovery_.health_of(id);
    return health == StageHealth::Up ? &stages.at(stages.stage(id)) : nullptr;
}

// ---- the conductor's actor ----

/// From the conductor's actor to a stage. To one that is lost: dropped.
void SimSupervisor::post(StageId from, StageId to, const control::Message& message) {
    const SimStage& home = stages.home_of(to);
    // As the supervisor: one that is not at work yet expects other words first.
    if (recovery_.health_of(home.spec.process.id) != StageHealth::Up) return;
    SimProcess& receiver = stages.at(home);
    if (const auto* begin = std::get_if<control::Begin>(&message)) {
        if (const auto before = begins_.deliver({home.serial, to}, *begin)) {
            core.violate(fmt::format("{} is told to begin attempt {} after attempt {}",
                                     receiver.self.title(), begin->attempt.value, before->value));
        }
        core.tell([&] {
            return fmt::format("Begin request {} attempt {} -> {}", begin->request.value,
                               begin->attempt.value, receiver.self.title());
        });
    }
    receiver.receive(SimMail{to, from, message});
}

void SimSupervisor::excuse_loss(StageId actor) {
    const ProcessSpec& process = stages.home_of(actor).spec.process;
    core.tell([&] { return "excused: " + process.name; });
    recovery_.excuse(process.id);
}

// ---- what it learns of processes ----

/// Tells the rules of recovery something about an incarnation. If it is an old one, it must change
/// nothing.
template <class News>
void SimSupervisor::inform(const SimProcess& about, News news) {
    const StageId id = about.self.id();
    const bool is_news = stages.is_current(about);
    const StageHealth health = recovery_.health_of(id);
    const Epoch epoch = recovery_.epoch_of(id);
    news();
    if (is_news || (health == recovery_.health_of(id) && epoch == recovery_.epoch_of(id))) return;
    core.violate("news of " + about.self.title() +
                 ", which has been replaced, changed what is thought of " +
                 stages.at(stages.stage(id)).self.title());
}

void SimSupervisor::suspect(const SimProcess& whom, const std::string& why) {
    inform(whom, [&] {
        const SimIdentity& self = whom.self;
        recovery_.suspect(self.id(), self.epoch, self.title() + why, core.micros());
    });
}

void SimSupervisor::machine_news(const NodeRoll::News& news) {
    using What = NodeRoll::News::What;
    const auto [id, epoch] = news.who;
    switch (news.what) {
        case What::Silent:
            return recovery_.suspect(id, epoch, news.why, core.micros());
        case What::Lost:
            return recovery_.machine_lost(id, epoch, news.why, core.micros());
        case What::Back:
            return recovery_.machine_back(id, core.micros());
    }
}

void SimSupervisor::ended(SimProcess& process) {
    devices.end(process.self);
    if (process.end()->unseen) return;
    if (process.end()->failed_by_itself && !process.faults.lingers())
        core.violate("a stage failed without a fault: " + process.exit_report());
    const SimIdentity& self = process.self;
    // A closed connection may be seen before the end of the process itself.
    const SimTime seen = core.now + timing.news(core.random);
    if (core.random.chance(50)) self.push(seen, SimEventKind::Suspicion);
    self.push(seen + timing.news(core.random), SimEventKind::Gone);
    // A peer's word on its broken channel may come when it has been replaced already.
    if (!core.random.chance(30)) return;
    self.push(core.now + timing.load(self.id(), core.random), SimEventKind::Suspicion);
}

/// As the supervisor's look at a telemetry block.
void SimSupervisor::look_for_hang(SimProcess& who) {
    if (who.ended() || !stages.is_current(who)) return;
    const TelemetrySnapshot& shown = who.telemetry.block;
    if (shown.activity != Activity::Computing || core.now < shown.deadline) return;
    SimStage& home = stages.stage(who.self.id());
    if (const auto complaint = home.watch.complaint(shown, core.now)) {
        home.hung = true;
        return suspect(who, " " + *complaint);
    }
    who.self.push(core.now + kLook, SimEventKind::Overdue);
}

/// A report has reached the conductor's process.
void SimSupervisor::take_report(SimProcess& from) {
    SimReport report = from.connection.take_report();
    const SimIdentity& self = from.self;
    const Micros now = core.micros();
    inform(from, [&] {
        if (std::holds_alternative<SimHello>(report)) {
            recovery_.greeted(self.id(), self.epoch, now);
        } else if (std::holds_alternative<SimReady>(report)) {
            recovery_.ready(self.id(), self.epoch, now);
        } else if (const auto* rewired = std::get_if<SimRewired>(&report)) {
            recovery_.rewired(self.id(), rewired->peer, rewired->epoch, now);
        } else if (const auto* failed = std::get_if<SimFailed>(&report)) {
            recovery_.suspect(self.id(), self.epoch, failed->error.what, now);
        }
    });
    if (!stages.is_current(from)) return;
    if (const auto* fault = std::get_if<SimEdgeFault>(&report)) return report_fault(*fault);
    auto* mail = std::get_if<SimMail>(&report);
    if (mail == nullptr) return;
    if (const auto* wanted = std::get_if<control::BeginWanted>(&mail->message))
        begins_.asked({self.serial, mail->from}, wanted->request);
    stages.conductor().receive(std::move(*mail));
}

/// No fault of a scenario changes a message: what is reported is a bug.
void SimSupervisor::report_fault(const SimEdgeFault& fault) {
    core.violate(fmt::format("a message that no stage may send: {}", fault.error.what));
    recovery_.suspect(stages.home_of(fault.peer).spec.process.id, fault.epoch, fault.error.what,
                      core.micros());
}

}  // namespace paceline

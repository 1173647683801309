#include "runtime/simulation/sim_world.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {
namespace {

/// The conductor's process hosts one actor that its caller owns.
struct BorrowedBody final : SimBody {
    explicit BorrowedBody(Actor& the_actor) : borrowed{the_actor} {}
    [[nodiscard]] Actor& actor(StageId /*id*/) override { return borrowed; }
    Actor& borrowed;
};

}  // namespace

const char* name_of(SimEventKind kind) {
    switch (kind) {
        case SimEventKind::Step:
            return "step";
        case SimEventKind::JobDone:
            return "job done";
        case SimEventKind::Thaw:
            return "thaw";
        case SimEventKind::Die:
            return "die";
        case SimEventKind::Loaded:
            return "loaded";
        case SimEventKind::ControlUp:
            return "report";
        case SimEventKind::Overdue:
            return "overdue";
        case SimEventKind::Hung:
            return "hung";
        case SimEventKind::Gone:
            return "gone";
        case SimEventKind::Suspicion:
            return "suspicion";
        case SimEventKind::Tick:
            return "tick";
        case SimEventKind::Fault:
            return "fault";
        case SimEventKind::Call:
            return "call";
    }
    return "unknown";
}

SimWorld::SimWorld(const SimOptions& options,
                   SimTiming& the_timing,
                   std::vector<SimProcessSpec> stages,
                   std::vector<EdgeSpec> edges)
    : SimSite{core_, the_timing}, options_{options}, core_{options.seed}, edges_{std::move(edges)} {
    tracing = options_.tracing;
    jobs_may_run_early = options_.jobs_may_run_early;
    if (options_.job_limits) hang_limit = options_.hang_limit;
    allocations = options_.allocations;
    core_.on_line = options_.on_line;
    std::vector<Recovery::Member> members;
    for (SimProcessSpec& spec : stages) {
        members.push_back({spec.process.id, spec.process.name, spec.process.on_death});
        const auto hosts = [&actors = spec.process.actors](StageId actor) {
            return std::find(actors.begin(), actors.end(), actor) != actors.end();
        };
        for (const EdgeSpec& edge : edges_) {
            if (hosts(edge.from) && hosts(edge.to)) spec.local_edges.push_back(edge);
        }
        stages_.push_back({.spec = std::move(spec)});
    }
    PACE_CHECK(!options_.job_limits || !shares_devices(),
               "a job's limit does not know of jobs beside it");
    recovery_.emplace(std::move(members), options_.restarts);
}

bool SimWorld::shares_devices() const {
    return std::any_of(stages_.begin(), stages_.end(),
                       [](const Stage& stage) { return !stage.spec.device.empty(); });
}

SimWorld::~SimWorld() = default;

void SimWorld::start(Actor& conductor_actor) {
    PACE_CHECK(processes_.empty(), "a world is started once");
    conductor_spec_.process = {.id = kConductor, .actors = {kConductor}, .name = "conductor"};
    conductor_spec_.make = [&conductor_actor] {
        return std::make_unique<BorrowedBody>(conductor_actor);
    };
    make_process(conductor_spec_, Epoch{1});
    for (Stage& each : stages_) each.serial = make_process(each.spec, Epoch{1}).serial();
    std::vector<SimWire> wires(processes_.size());
    for (std::size_t i = 0; i < processes_.size(); ++i) {
        for (std::size_t k = i + 1; k < processes_.size(); ++k) {
            for (const auto& channel : connect(*processes_[i], *processes_[k])) {
                wires[i].channels.push_back(channel);
                wires[k].channels.push_back(channel);
            }
        }
    }
    for (std::size_t i = wires.size(); i-- > 0;) processes_[i]->run_at_once(std::move(wires[i]));
}

SimProcess& SimWorld::make_process(const SimProcessSpec& spec,
                                   Epoch epoch,
                                   const JobRecords& before) {
    const auto serial = static_cast<std::uint32_t>(processes_.size());
    SimSite& site = *this;
    processes_.push_back(std::make_unique<SimProcess>(site, spec, epoch, serial, before));
    return *processes_.back();
}

void SimWorld::job_began(SimProcess& process, const JobLabel& label, SimTime alone) {
    SharedDevice& device = devices_[process.spec().device];
    device.begin(process.serial(), core_.now, alone,
                 [this, id = process.id(), label](std::uint32_t others) {
                     return timing.contention(id, label, others);
                 });
    move_ends(device);
}

void SimWorld::job_ended(SimProcess& process) {
    SharedDevice& device = devices_[process.spec().device];
    device.end(process.serial(), core_.now);
    move_ends(device);
}

void SimWorld::move_ends(const SharedDevice& device) {
    for (const SharedDevice::End& end : device.ends()) process(end.who).move_job_end(end.at);
}

void SimWorld::add_faults(std::vector<SimFault> faults) {
    PACE_CHECK(!shares_devices(), "shared devices are of worlds without faults");
    for (SimFault& fault : faults) {
        core_.push(fault.at, SimEventKind::Fault, 0, faults_.size());
        faults_.push_back(fault);
    }
}

void SimWorld::call_at(SimTime time, std::function<void()> call) {
    core_.push(time, SimEventKind::Call, 0, calls_.size());
    calls_.push_back(std::move(call));
}

bool SimWorld::run(const std::function<bool()>& done, SimTime limit) {
    while (!core_.violation && !gave_up_) {
        if (done()) return true;
        const std::optional<SimTime> next = core_.next_at();
        if (!next) return false;
        if (*next > limit) {
            core_.now = limit;
            return false;
        }
        const std::optional<SimEvent> event = core_.pop();
        dispatch(*event);
        obey();
        check_conductor();
    }
    return false;
}

void SimWorld::dispatch(const SimEvent& event) {
    if (waits_for_resume(event)) {
        return core_.push(suspended_until_, event.kind, event.who, event.data);
    }
    SimProcess& who = process(event.who);
    switch (event.kind) {
        case SimEventKind::Step:
            return who.step(event.at);
        case SimEventKind::JobDone:
            return who.job_done(event.data);
        case SimEventKind::Thaw:
            return who.thaw();
        case SimEventKind::Die:
            return die(event.who);
        case SimEventKind::Loaded:
            return who.loaded(event.data);
        case SimEventKind::ControlUp:
            return take_report(who);
        case SimEventKind::Overdue:
            return look_for_hang(who);
        case SimEventKind::Hung:
            if (who.ended() || !who.frozen() || who.freezes() != event.data) return;
            return suspect(who, " hangs");
        case SimEventKind::Gone:
            return notice_end(who);
        case SimEventKind::Suspicion:
            return suspect(who, " is suspected");
        case SimEventKind::Tick:
            tick_at_ = SimTime::max();
            return recovery_->tick(core_.micros());
        case SimEventKind::Fault:
            return strike(faults_[event.data]);
        case SimEventKind::Call: {
            const std::function<void()> call = calls_[event.data];  // it may add others
            call();
            return conductor().wake(core_.now);
        }
    }
}

void SimWorld::check_conductor() {
    ActorHost& host = conductor().host();
    if (!host.ended()) return;
    const Status outcome = host.outcome();
    if (!outcome.ok()) violate("the conductor failed: " + outcome.error().what);
    if (!gave_up_) gave_up_ = outcome.ok() ? Error{Errc::Cancelled, "left"} : outcome.error();
}

void SimWorld::ended(SimProcess& process) {
    if (!process.spec().device.empty()) job_ended(process);
    if (process.failed_by_itself() && !lingering_.contains(process.serial())) {
        violate("a stage failed without a fault: " + process.exit_report());
    }
    // A closed connection may be seen before the end of the process itself.
    const SimTime seen = core_.now + timing.news(core_.random);
    if (core_.random.chance(50)) core_.push(seen, SimEventKind::Suspicion, process.serial());
    core_.push(seen + timing.news(core_.random), SimEventKind::Gone, process.serial());
    // A peer's word on its broken channel may come when it has been replaced already.
    if (!core_.random.chance(30)) return;
    core_.push(core_.now + timing.load(process.id(), core_.random), SimEventKind::Suspicion,
               process.serial());
}

/// The process of an actor.
SimWorld::Stage& SimWorld::home_of(StageId actor) {
    const auto hosts = [actor](const Stage& each) {
        const auto& actors = each.spec.process.actors;
        return std::find(actors.begin(), actors.end(), actor) != actors.end();
    };
    const auto home = std::find_if(stages_.begin(), stages_.end(), hosts);
    PACE_CHECK(home != stages_.end(), "an actor that no stage hosts");
    return *home;
}

void SimWorld::excuse_loss(StageId actor) {
    core_.tell([&] { return "excused: " + home_of(actor).spec.process.name; });
    recovery_->excuse(home_of(actor).spec.process.id);
}

/// From the conductor's actor to a stage. To one that is lost: dropped.
void SimWorld::post(StageId from, StageId to, const control::Message& message) {
    Stage* home = &home_of(to);
    // As the supervisor: one that is not at work yet expects other words first.
    if (recovery_->health_of(home->spec.process.id) != StageHealth::Up) return;
    if (const auto* begin = std::get_if<control::Begin>(&message)) {
        const RequestAt at_stage{home->serial, to, begin->request};
        const auto [last, first] = begun_.try_emplace(at_stage, begin->attempt);
        const bool again = asked_.erase(at_stage) != 0 && begin->attempt == last->second;
        if (!first && !again && begin->attempt <= last->second) {
            violate(fmt::format("{} is told to begin attempt {} after attempt {}",
                                at(*home).title(), begin->attempt.value, last->second.value));
        }
        last->second = begin->attempt;
        core_.tell([&] {
            return fmt::format("Begin request {} attempt {} -> {}", begin->request.value,
                               begin->attempt.value, at(*home).title());
        });
    }
    at(*home).receive(SimMail{to, from, message});
}

SimWorld::Stage& SimWorld::stage(StageId id) {
    const auto found = std::find_if(stages_.begin(), stages_.end(),
                                    [id](const Stage& each) { return each.spec.process.id == id; });
    PACE_CHECK(found != stages_.end(), "a stage that does not exist");
    return *found;
}

bool SimWorld::is_current(const SimProcess& process) {
    return process.serial() == 0 || stage(process.id()).serial == process.serial();
}

SimProcess* SimWorld::current(StageId id) {
    const StageHealth health = recovery_->health_of(id);
    return health == StageHealth::Up ? &at(stage(id)) : nullptr;
}

bool SimWorld::all_up() const {
    return std::all_of(stages_.begin(), stages_.end(), [this](const Stage& each) {
        const StageHealth health = recovery_->health_of(each.spec.process.id);
        return health == StageHealth::Up || health == StageHealth::Disabled;
    });
}

std::optional<std::string> SimWorld::forgotten_channels() {
    for (const auto& process : processes_) {
        if (process->ended() || !is_current(*process)) continue;
        for (const auto& channel : process->channels_out()) {
            const SimProcess& peer = *processes_[channel->to.serial];
            if (!peer.ended()) continue;
            return process->title() + " still has a channel to " + peer.title() + ", which is gone";
        }
    }
    return std::nullopt;
}

std::optional<std::string> SimWorld::leaked_tensors() {
    for (const auto& producer : processes_) {
        if (producer->ended() || !is_current(*producer)) continue;
        for (const auto& channel : producer->channels_out()) {
            // An actor may keep one slot acquired for its next batch.
            if (!channel->read || channel->tensors_free(1)) continue;
            return fmt::format("{} never got back a tensor slot from stage {}", producer->title(),
                               channel->spec.to.value);
        }
    }
    return std::nullopt;
}

}  // namespace paceline

#include "runtime/simulation/sim_world.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "ipc/base/check.hpp"
#include "runtime/simulation/sim_loop.hpp"

namespace paceline {

SimWorld::SimWorld(const SimOptions& options,
                   SimTiming& timing,
                   std::vector<SimProcessSpec> stages,
                   std::vector<EdgeSpec> edges)
    : core_{options.seed},
      stages_{std::move(stages), std::move(edges)},
      devices_{core_, timing, stages_},
      supervisor_{core_, timing, stages_, devices_, options},
      faults_{supervisor_} {
    core_.on_line = options.on_line;
    PACE_CHECK(!options.job_limits || !stages_.share_devices(),
               "a job's limit does not know of jobs beside it");
}

void SimWorld::start(Actor& conductor) {
    if (supervisor_.options.machines.others > 0) {
        machines_.emplace(supervisor_);
        supervisor_.machines = &*machines_;
        machines_->begin();
    }
    stages_.start(supervisor_, conductor);
}

void SimWorld::call_at(SimTime time, std::function<void()> call) {
    core_.push(time, SimEventKind::Call, 0, calls_.size());
    calls_.push_back(std::move(call));
}

void SimWorld::suspend(SimTime lasts) {
    PACE_CHECK(!stages_.share_devices(), "shared devices are of worlds without faults");
    const SimTime until = core_.now + lasts;
    if (until <= suspended_until_) return;
    const SimTime gap = until - std::max(core_.now, suspended_until_);
    suspended_until_ = until;
    core_.tell([&] { return fmt::format("suspended for {} us", lasts.count() / 1'000); });
    for (const auto& process : stages_.incarnations()) {
        if (!process->ended()) process->suspend(until, gap);
    }
    // Before the supervisor's own events of that time.
    call_at(until, [this, gap] { supervisor_.paused(gap); });
}

bool SimWorld::run(const std::function<bool()>& done, SimTime limit) {
    while (!core_.violation && !core_.gave_up) {
        if (done()) return true;
        const std::optional<SimTime> next = core_.next_at();
        if (!next) return false;
        if (*next > limit) {
            core_.now = limit;
            return false;
        }
        const std::optional<SimEvent> event = core_.pop();
        dispatch(*event);
        supervisor_.obey();
        supervisor_.check_conductor();
    }
    return false;
}

void SimWorld::dispatch(const SimEvent& event) {
    SimProcess& who = stages_.process(event.who);
    switch (event.kind) {
        case SimEventKind::Step:
            return who.step(event.at);
        case SimEventKind::JobDone:
            return who.job_done(event.data);
        case SimEventKind::Thaw:
            return who.thaw();
        case SimEventKind::Loaded:
            return who.loaded(event.data);
        case SimEventKind::Fault:
            return faults_.strike(event.data);
        case SimEventKind::Call: {
            const std::function<void()> call = calls_[event.data];  // it may add others
            call();
            return stages_.conductor().wake(core_.now);
        }
        case SimEventKind::Machine:
            return machines_->run(event.data);
        case SimEventKind::Die:
        case SimEventKind::ControlUp:
        case SimEventKind::Overdue:
        case SimEventKind::Hung:
        case SimEventKind::Gone:
        case SimEventKind::Suspicion:
        case SimEventKind::Tick:
            // Kernel and supervisor are suspended with the machine; processes see to it themselves.
            if (core_.now < suspended_until_)
                return core_.push(suspended_until_, event.kind, event.who, event.data);
            return supervisor_.handle(event);
    }
}

}  // namespace paceline

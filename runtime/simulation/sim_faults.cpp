#include "runtime/simulation/sim_faults.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "runtime/simulation/sim_world.hpp"

namespace paceline {
namespace {

constexpr SimTime kMilli{1'000'000};
constexpr SimTime kSecond{1'000'000'000};
constexpr SimTime kLook = 10 * kMilli;  // the supervisor's, at a stage that is late

}  // namespace

const char* name_of(SimFaultKind kind) {
    switch (kind) {
        case SimFaultKind::Crash:
            return "crash";
        case SimFaultKind::CrashInHandler:
            return "crash in a handler";
        case SimFaultKind::CrashAtStart:
            return "crash at the next start";
        case SimFaultKind::Freeze:
            return "freeze";
        case SimFaultKind::OutOfMemory:
            return "out of memory";
        case SimFaultKind::Slow:
            return "slow";
        case SimFaultKind::FalseSuspicion:
            return "false-suspicion";
        case SimFaultKind::Linger:
            return "linger";
        case SimFaultKind::StallEdges:
            return "stall of edges";
    }
    return "unknown";
}

std::string describe(const SimFault& fault) {
    return fmt::format("{} of stage {} at {} us, count {}, lasts {} us", name_of(fault.kind),
                       fault.process.value, fault.at.count() / 1'000, fault.count,
                       fault.lasts.count() / 1'000);
}

void SimWorld::strike(const SimFault& fault) {
    Stage& hit = stage(fault.process);
    SimProcess& process = at(hit);
    core_.tell([&] { return "fault: " + describe(fault); });
    switch (fault.kind) {
        case SimFaultKind::Crash:
            process.die("crashed");
            break;
        case SimFaultKind::CrashInHandler:
            process.crash_after_sends(fault.count);
            break;
        case SimFaultKind::CrashAtStart:
            hit.dies_at_start = fault.lasts;
            break;
        case SimFaultKind::Freeze:
            freeze(process, fault.lasts);
            break;
        case SimFaultKind::OutOfMemory:
            process.fail_allocation(fault.count);
            break;
        case SimFaultKind::Slow:
            process.slow_down(100, core_.now + fault.lasts);
            break;
        case SimFaultKind::FalseSuspicion:
            core_.push(core_.now, SimEventKind::Suspicion, process.serial());
            break;
        case SimFaultKind::Linger:
            freeze(process, 2 * SimTime{options_.hang_limit} + fault.lasts);
            hit.lingers = 2 * SimTime{options_.hang_limit} + fault.lasts + kSecond;
            break;
        case SimFaultKind::StallEdges:
            stall_edges(fault);
            break;
    }
}

void SimWorld::freeze(SimProcess& process, SimTime lasts) {
    process.freeze(core_.now + lasts);
    core_.push(core_.now + SimTime{options_.hang_limit}, SimEventKind::Hung, process.serial(),
               process.freezes());
}

/// As the supervisor's look at a telemetry block.
void SimWorld::look_for_hang(SimProcess& who) {
    if (who.ended() || !is_current(who) || who.jobs() == nullptr) return;
    const TelemetrySnapshot& shown = who.jobs()->snapshot();
    if (shown.activity != Activity::Computing || core_.now < shown.deadline) return;
    Stage& home = stage(who.id());
    if (const auto complaint = home.watch.complaint(shown, core_.now)) {
        home.hung = true;
        return suspect(who, " " + *complaint);
    }
    core_.push(core_.now + kLook, SimEventKind::Overdue, who.serial());
}

void SimWorld::suspend(SimTime lasts) {
    PACE_CHECK(!shares_devices(), "shared devices are of worlds without faults");
    const SimTime until = core_.now + lasts;
    if (until <= suspended_until_) return;
    const SimTime gap = until - std::max(core_.now, suspended_until_);
    suspended_until_ = until;
    core_.tell([&] { return fmt::format("suspended for {} us", lasts.count() / 1'000); });
    for (const auto& process : processes_) {
        if (!process->ended()) process->suspend(until, gap);
    }
    // Before the supervisor's own events of that time.
    call_at(until, [this, gap] {
        for (Stage& each : stages_) each.watch.paused(core_.now, gap);
        recovery_->paused(std::chrono::duration_cast<Micros>(gap), core_.micros());
    });
}

/// Events of the kernel and the supervisor. Processes handle the suspension themselves.
bool SimWorld::waits_for_resume(const SimEvent& event) const {
    if (core_.now >= suspended_until_) return false;
    switch (event.kind) {
        case SimEventKind::Die:
        case SimEventKind::ControlUp:
        case SimEventKind::Overdue:
        case SimEventKind::Hung:
        case SimEventKind::Gone:
        case SimEventKind::Suspicion:
        case SimEventKind::Tick:
            return true;
        case SimEventKind::Step:
        case SimEventKind::JobDone:
        case SimEventKind::Loaded:
        case SimEventKind::Thaw:
        case SimEventKind::Fault:
        case SimEventKind::Call:
            return false;
    }
    return false;
}

void SimWorld::stall_edges(const SimFault& fault) {
    const auto stall_some = [&](const SimProcess& process) {
        for (const auto& channel : process.channels_out()) {
            if (!core_.random.chance(40)) continue;
            channel->stall(core_.now + core_.random.uniform(SimTime{0}, fault.lasts));
        }
    };
    stall_some(conductor());
    for (const Stage& each : stages_) stall_some(at(each));
}

}  // namespace paceline

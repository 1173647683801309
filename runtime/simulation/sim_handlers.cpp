// The second half of SimProcess: its iterations, jobs and sleep. The first half
// (sim_process.cpp) implements the interface to its actors and its connection.
#include <algorithm>
#include <fmt/core.h>
#include <new>
#include <utility>

#include "runtime/simulation/sim_process.hpp"

namespace paceline {
namespace {

constexpr int kBurst = 16;               // frames taken from one channel before the others
constexpr int kIterationsMax = 100'000;  // without time passing: then it loops without progress

}  // namespace

bool SimProcess::may_handle() const {
    const bool occupied = busy_ && !spec_.handlers_during_jobs;
    return life_ != Life::Ended && life_ != Life::Loading && !frozen() && !occupied && !doomed_ &&
           !host_->ended();
}

void SimProcess::wake(SimTime at) {
    at = std::max(at, site_.core.now);
    if (life_ == Life::Ended || at >= wake_at_) return;
    wake_at_ = at;
    site_.core.push(at, SimEventKind::Step, serial_);
}

/// Calls into the host; allocations fail according to the fault.
template <class Call>
void SimProcess::guarded(Call call) {
    const bool arms = allocation_fails_.has_value() && site_.allocations != nullptr;
    if (arms) site_.allocations(*allocation_fails_);
    try {
        call();
    } catch (const std::bad_alloc&) {
        // Outside of a handler nothing could report Failed.
        allocation_failed_ = true;
        doomed_ = true;
    }
    if (!arms) return;
    const std::int64_t left = site_.allocations(-1);
    if (left >= 0) {
        allocation_fails_ = static_cast<std::uint32_t>(left);
        return;
    }
    allocation_fails_.reset();
    allocation_failed_ = true;
}

void SimProcess::step(SimTime event_at) {
    if (event_at != wake_at_) return;
    wake_at_ = SimTime::max();
    run_until_blocked();
}

/// Does everything that can be done now.
void SimProcess::run_until_blocked() {
    int iterations = 0;
    do {
        bool any = true;
        while (any && may_handle()) {
            guarded([&] { any = iterate(); });
            if (++iterations > kIterationsMax)
                return site_.core.violate(title() + " loops without progress");
        }
    } while (may_handle() && must_wait_for_room());
    if (life_ == Life::Ended) return;
    if (doomed_) return die(allocation_failed_ ? "died of bad_alloc" : "crashed while it sent");
    if (host_->ended() && serial_ != 0) {
        const Status outcome = host_->outcome();
        if (!outcome.ok()) {
            failed_by_itself_ = !allocation_failed_;
            report(SimFailed{outcome.error()});
        }
        return die(outcome.ok() ? "stopped" : "failed: " + outcome.error().what);
    }
    tell_producers();
    bury_retired();
    plan_wake();
}

bool SimProcess::iterate() {
    bool any = take_control();
    if (life_ != Life::Running) return any;
    // By index: a control message may close or add edges.
    for (std::size_t i = 0; i < in_.size() && may_handle(); ++i) {
        const std::shared_ptr<SimChannel> channel = in_[i];
        any = drain(*channel) || any;
    }
    any = host_->deliver_round() || any;
    any = call_rooms() || any;
    any = host_->call_rooms() || any;
    any = host_->run_timers() || any;
    if (!busy_ && may_handle() && !host_->jobs().empty() && !host_->has_mail()) {
        start_job();
        any = true;
    }
    return lose_faulty() || any;
}

bool SimProcess::take_control() {
    bool any = false;
    while (!control_.empty() && control_.front().arrives <= site_.core.now && may_handle()) {
        SimMessage message = std::move(control_.front().message);
        control_.pop_front();
        take(std::move(message));
        any = true;
    }
    return any;
}

bool SimProcess::drain(SimChannel& channel) {
    bool any = false;
    for (int i = 0; i < kBurst && channel.read && may_handle(); ++i) {
        if (!channel.has_frame(site_.core.now) || is_faulty(channel.spec.from)) break;
        const SimChannel::Frame frame = channel.pop();
        tell([&] {
            return fmt::format("handles {} from {}", describe_frame(frame.kind, frame.bytes),
                               channel.spec.from.value);
        });
        host_->handle(channel.spec.to, channel.spec.from, frame.kind, frame.bytes);
        any = true;
    }
    return any;
}

bool SimProcess::call_rooms() {
    bool any = false;
    for (std::size_t i = 0; i < out_.size() && may_handle(); ++i) {
        Out& out = out_[i];
        SimChannel& channel = *out.channel;
        if (channel.producer && channel.producer->take_starved()) out.wants_slot = true;
        const bool room = out.wants_room && channel.has_room(Urgency::Normal);
        const bool slot = out.wants_slot && channel.producer->has_room();
        if (!room && !slot) continue;
        if (room) out.wants_room = false;
        if (slot) out.wants_slot = false;
        host_->room(channel.spec.from, channel.spec.to);
        any = true;
    }
    return any;
}

void SimProcess::start_job() {
    SimCore& core = site_.core;
    label_ = *host_->jobs().first();
    SimTime takes = site_.timing.job(id(), label_, core.random);
    if (core.now < slow_until_) takes *= slow_;
    busy_ = true;
    job_began_ = core.now;
    count(Counter::Jobs, 1);
    tell([&] {
        return fmt::format("begins a job: {}, {} rows, batch {}", label_.name, label_.rows,
                           label_.id);
    });
    {
        const AllocationPause pause{site_};
        job_ends_ = core.now + takes;
        core.push(job_ends_, SimEventKind::JobDone, serial_, ++job_);
        if (jobs_) {
            const SimTime deadline = jobs_->begin(label_, core.now, *site_.hang_limit);
            // Few jobs are late, and an event for each would cost more than the others.
            if (deadline < job_ends_) core.push(deadline, SimEventKind::Overdue, serial_);
        }
        if (!spec_.device.empty()) site_.job_began(*this, label_, takes);
    }
    // When the work was done cannot be told, if no handler runs before its end.
    ran_early_ = site_.jobs_may_run_early && !spec_.handlers_during_jobs && random_.chance(50);
    if (ran_early_) host_->run_job();
}

void SimProcess::move_job_end(SimTime at) {
    if (life_ == Life::Ended || !busy_ || at == job_ends_) return;
    job_ends_ = at;
    site_.core.push(job_ends_, SimEventKind::JobDone, serial_, ++job_);
}

void SimProcess::job_done(std::uint64_t job) {
    if (life_ == Life::Ended || job != job_) return;
    if (frozen()) return site_.core.push(frozen_until_, SimEventKind::JobDone, serial_, job);
    if (!spec_.device.empty()) site_.job_ended(*this);
    const SimTime took = site_.core.now - job_began_;
    in_jobs_ += took;
    tell([] { return std::string{"ends its job"}; });
    if (!ran_early_) guarded([&] { host_->run_job(); });
    busy_ = false;
    if (jobs_) jobs_->end(label_, took, host_->jobs().last_outcome());
    if (site_.tracing) {
        TraceEvent event;
        event.time_us = std::chrono::duration_cast<Micros>(job_began_).count();
        event.duration_us =
            static_cast<std::uint32_t>(std::chrono::duration_cast<Micros>(took).count());
        event.kind = TraceKind::Job;
        event.request = label_.request;
        event.id = label_.id;
        event.count = label_.rows;
        event.position = label_.context;
        event.detail = label_.layers;
        event.label = job_name_index(label_.name);
        event.heads = heads_of(label_);
        trace_.push_back(event);
    }
    run_until_blocked();
}

/// Before it sleeps: marks channels whose room it waits for and checks them again. True: there is
/// room.
bool SimProcess::must_wait_for_room() {
    bool found = false;
    for (Out& out : out_) {
        SimChannel& channel = *out.channel;
        if (out.wants_room) {
            channel.room_wanted = true;
            found = found || channel.has_room(Urgency::Normal);
        }
        if (out.wants_slot) {
            channel.producer->want_room();
            found = found || channel.producer->has_room();
        }
    }
    return found;
}

/// What was handled or released may be what a producer waits for.
void SimProcess::tell_producers() {
    for (const auto& channel : in_) {
        const bool ring = channel->room_wanted && channel->has_room(Urgency::Normal);
        const bool pool = channel->consumer && channel->consumer->take_room_wanted();
        if (!ring && !pool) continue;
        channel->room_wanted = false;
        SimProcess& producer = site_.process(channel->from.serial);
        producer.wake(site_.core.now + site_.timing.news(site_.core.random));
    }
}

void SimProcess::plan_wake() {
    if (busy_ && !spec_.handlers_during_jobs) return;  // the end of the job wakes it
    if (life_ != Life::Waiting && life_ != Life::Running) return;
    SimTime next = SimTime::max();
    if (!control_.empty()) next = std::min(next, control_.front().arrives);
    for (const auto& channel : in_) {
        if (const auto arrival = channel->next_arrival()) next = std::min(next, *arrival);
    }
    if (const auto timer = host_->next_timer()) next = std::min<SimTime>(next, *timer);
    if (next != SimTime::max()) wake(std::max(next, frozen() ? frozen_until_ : next));
}

}  // namespace paceline

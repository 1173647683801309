#include "runtime/simulation/sim_loop.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <string>
#include <utility>
#include <variant>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

constexpr int kBurst = 16;               // frames taken from one channel before the others
constexpr int kIterationsMax = 100'000;  // without time passing: then it loops without progress

}  // namespace

SimLoop::SimLoop(SimProcess& process, const JobRecords& before)
    : process_{process},
      environment_{process},
      jobs_{process.self, process.telemetry, before},
      host_{environment_, ActorHost::Channels::OnDemand} {}

void SimLoop::start(SimWire wire) {
    const SimIdentity& self = process_.self;
    body_ = self.spec.make();
    process_.edges.add_absent(wire.absent);
    process_.edges.add(wire.channels);
    for (const StageId id : self.spec.process.actors) host_.add(id, self.epoch, body_->actor(id));
    for (const EdgeSpec& edge : self.spec.local_edges) {
        const Status connected = host_.connect(edge);
        PACE_CHECK(connected.ok(), "a simulated channel needs no device");
    }
    host_.start();
}

bool SimLoop::may_handle() const {
    const bool occupied = jobs_.is_busy() && !process_.self.spec.handlers_during_jobs;
    const SimProcessFaults& faults = process_.faults;
    return !faults.is_frozen() && !occupied && !faults.is_doomed() && !host_.ended();
}

std::optional<SimEnd> SimLoop::run_until_blocked() {
    const SimIdentity& self = process_.self;
    SimProcessFaults& faults = process_.faults;
    int iterations = 0;
    do {
        bool any = true;
        while (any && may_handle()) {
            faults.guard([&] { any = iterate(); });
            if (++iterations <= kIterationsMax) continue;
            self.site.core.violate(self.title() + " loops without progress");
            return std::nullopt;
        }
    } while (may_handle() && process_.edges.ask_for_room());
    if (faults.is_doomed())
        return SimEnd{faults.ran_out_of_memory() ? "died of bad_alloc" : "crashed while it sent"};
    if (host_.ended() && !self.is_conductor()) {
        const Status outcome = host_.outcome();
        if (outcome.ok()) return SimEnd{"stopped"};
        process_.connection.report(SimFailed{outcome.error()});
        return SimEnd{"failed: " + outcome.error().what, !faults.ran_out_of_memory()};
    }
    process_.edges.tell_producers();
    if (!jobs_.is_busy() && host_.jobs().empty() && !host_.has_mail())
        process_.edges.bury_retired();
    plan_wake();
    return std::nullopt;
}

bool SimLoop::iterate() {
    bool any = take_control();
    if (!is_running()) return any;
    const SimChannels& in = process_.edges.in();
    // By index: a control message may close or add edges.
    for (std::size_t i = 0; i < in.size() && may_handle(); ++i) {
        const std::shared_ptr<SimChannel> channel = in[i];
        any = drain(*channel) || any;
    }
    any = host_.deliver_round() || any;
    any = call_rooms() || any;
    any = host_.call_rooms() || any;
    any = host_.run_timers() || any;
    if (!jobs_.is_busy() && may_handle() && !host_.jobs().empty() && !host_.has_mail()) {
        start_job();
        any = true;
    }
    return lose_faulty() || any;
}

// ---- control messages and peers ----

bool SimLoop::take_control() {
    bool any = false;
    while (may_handle()) {
        const std::optional<SimTime> arrival = process_.connection.next_arrival();
        if (!arrival || *arrival > process_.self.now()) break;
        take(process_.connection.receive());
        any = true;
    }
    return any;
}

void SimLoop::take(SimMessage message) {
    static constexpr std::array kNames{"a control message", "Wire", "Unwire", "Rewire", "Joined"};
    process_.self.tell([&] { return "takes " + std::string{kNames[message.index()]}; });
    if (auto* mail = std::get_if<SimMail>(&message)) {
        host_.control(mail->to, mail->from, mail->message);
    } else if (auto* wire = std::get_if<SimWire>(&message)) {
        start(std::move(*wire));
        process_.connection.report(SimReady{});
    } else if (auto* lost = std::get_if<SimUnwire>(&message)) {
        for (const StageId peer : lost->peers) lose(peer);
    } else if (auto* wired = std::get_if<SimRewire>(&message)) {
        // First retire the channels of the earlier incarnation, and report its loss if that has not
        // been done.
        for (const StageId peer : wired->peers) lose(peer);
        process_.edges.add(wired->channels);
        if (process_.self.is_conductor()) return;
        process_.connection.report(SimRewired{wired->peers.front(), wired->epoch});
        for (const StageId peer : wired->peers) host_.peer(peer, PeerChange::Joined);
    } else if (auto* joined = std::get_if<SimJoined>(&message)) {
        for (const StageId peer : joined->peers) host_.peer(peer, PeerChange::Joined);
    }
}

void SimLoop::lose(StageId peer) {
    if (process_.edges.lose(peer)) host_.peer(peer, PeerChange::Lost);
}

/// Once no handler runs: the channels with those that broke their rules are closed.
bool SimLoop::lose_faulty() {
    bool any = false;
    for (SimEdgeFault& fault : environment_.take_faulty()) {
        if (process_.edges.is_absent(fault.peer)) continue;
        lose(fault.peer);
        any = true;
        if (process_.self.is_conductor()) {
            process_.self.site.report_fault(fault);
        } else {
            process_.connection.report(std::move(fault));
        }
    }
    return any;
}

// ---- channels ----

bool SimLoop::drain(SimChannel& channel) {
    bool any = false;
    for (int i = 0; i < kBurst && channel.read && may_handle(); ++i) {
        if (!channel.has_frame(process_.self.now()) || environment_.is_faulty(channel.spec.from))
            break;
        const SimChannel::Frame frame = channel.pop();
        process_.self.tell([&] {
            return fmt::format("handles {} from {}", describe_frame(frame.kind, frame.bytes),
                               channel.spec.from.value);
        });
        host_.handle(channel.spec.to, channel.spec.from, frame.kind, frame.bytes);
        any = true;
    }
    return any;
}

bool SimLoop::call_rooms() {
    bool any = false;
    std::vector<SimEdges::Out>& edges = process_.edges.out();
    for (std::size_t i = 0; i < edges.size() && may_handle(); ++i) {
        SimEdges::Out& out = edges[i];
        SimChannel& channel = *out.channel;
        if (channel.producer && channel.producer->take_starved()) out.wants_slot = true;
        const bool room = out.wants_room && channel.has_room(Urgency::Normal);
        const bool slot = out.wants_slot && channel.producer->has_room();
        if (!room && !slot) continue;
        if (room) out.wants_room = false;
        if (slot) out.wants_slot = false;
        host_.room(channel.spec.from, channel.spec.to);
        any = true;
    }
    return any;
}

// ---- jobs and sleep ----

void SimLoop::start_job() {
    const SimIdentity& self = process_.self;
    const JobLabel& label = *host_.jobs().first();
    const SimTime takes = self.site.timing.job(self.id(), label, self.site.core.random);
    jobs_.begin(label, process_.faults.slowed(takes));
    // When the work was done cannot be told, if no handler runs before its end.
    ran_early_ = self.site.options.jobs_may_run_early && !self.spec.handlers_during_jobs &&
                 environment_.chance(50);
    if (ran_early_) host_.run_job();
}

bool SimLoop::job_done(std::uint64_t number) {
    SimProcessFaults& faults = process_.faults;
    if (!jobs_.is_end(number)) return false;
    if (faults.is_frozen()) {
        process_.self.push(faults.frozen_until(), SimEventKind::JobDone, number);
        return false;
    }
    jobs_.stop();
    if (!ran_early_) faults.guard([this] { host_.run_job(); });
    jobs_.end(host_.jobs().last_outcome());
    return true;
}

void SimLoop::plan_wake() {
    if (jobs_.is_busy() && !process_.self.spec.handlers_during_jobs) return;  // its end wakes it
    SimTime next = process_.connection.next_arrival().value_or(SimTime::max());
    if (const auto frame = process_.edges.next_arrival()) next = std::min(next, *frame);
    if (const auto timer = host_.next_timer()) next = std::min<SimTime>(next, *timer);
    if (next == SimTime::max()) return;
    process_.wake(std::max(next, process_.faults.frozen_until()));
}

}  // namespace paceline

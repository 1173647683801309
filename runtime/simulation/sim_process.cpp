#include "runtime/simulation/sim_process.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/wire/data_kinds.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {

std::string describe_frame(std::uint16_t kind, std::span<const std::byte> bytes) {
    static constexpr std::array kNames{"?", "Proposal", "Batch", "Verdict", "Stop", "TensorNote"};
    const msg::Route route = msg::route_of(kind, bytes).value_or(msg::Route{});
    return fmt::format("{} request {} attempt {}", kNames[kind < kNames.size() ? kind : 0],
                       route.request.value, route.attempt.value);
}

SimProcess::SimProcess(SimSite& site,
                       const SimProcessSpec& spec,
                       Epoch epoch,
                       std::uint32_t serial,
                       const JobRecords& before)
    : site_{site}, spec_{spec}, epoch_{epoch}, serial_{serial}, random_{site.core.random.next()} {
    if (site_.hang_limit) {
        const SimTime row = site_.timing.timed_row(spec.process.id);
        jobs_.emplace(std::chrono::duration_cast<Micros>(row), before);
    }
    host_ = std::make_unique<ActorHost>(*this, ActorHost::Channels::OnDemand);
}

SimProcess::~SimProcess() = default;

std::string SimProcess::title() const {
    return fmt::format("{}#{}", spec_.process.name, epoch_.value);
}

// ---- life ----

void SimProcess::load(SimTime takes) {
    load_ends_ = site_.core.now + takes;
    site_.core.push(load_ends_, SimEventKind::Loaded, serial_, ++load_);
}

void SimProcess::loaded(std::uint64_t load) {
    if (life_ != Life::Loading || load != load_) return;
    if (frozen()) return site_.core.push(frozen_until_, SimEventKind::Loaded, serial_, load);
    life_ = Life::Waiting;
    report(SimHello{});
}

void SimProcess::run_at_once(SimWire wire) {
    start(std::move(wire));
    run_until_blocked();
}

void SimProcess::start(SimWire wire) {
    life_ = Life::Running;
    body_ = spec_.make();
    absent_.insert(wire.absent.begin(), wire.absent.end());
    add_channels(wire.channels);
    for (const StageId id : spec_.process.actors) host_->add(id, epoch_, body_->actor(id));
    for (const EdgeSpec& edge : spec_.local_edges) {
        const Status connected = host_->connect(edge);
        PACE_CHECK(connected.ok(), "a simulated channel needs no device");
    }
    host_->start();
}

void SimProcess::die(const std::string& how) {
    if (life_ == Life::Ended) return;
    life_ = Life::Ended;
    exit_report_ = title() + " " + how;
    tell([&] { return "is no more: " + how; });
    // Frees its memory. None of its code is on the call stack: a process that dies inside a handler
    // is only doomed until the handler returns.
    out_.clear();
    in_.clear();
    retired_.clear();
    control_.clear();
    host_.reset();
    body_.reset();
    site_.ended(*this);
}

bool SimProcess::wired_to(std::uint32_t serial) const {
    const auto to_it = [serial](const Out& out) { return out.channel->to.serial == serial; };
    const auto from_it = [serial](const auto& in) { return in->from.serial == serial; };
    return std::any_of(out_.begin(), out_.end(), to_it) ||
           std::any_of(in_.begin(), in_.end(), from_it);
}

SimChannels SimProcess::channels_out() const {
    SimChannels channels;
    for (const Out& out : out_) channels.push_back(out.channel);
    return channels;
}

// ---- HostEnvironment ----

Push SimProcess::send(StageId from,
                      StageId to,
                      std::uint16_t kind,
                      std::span<const std::byte> bytes) {
    const AllocationPause pause{site_};
    if (doomed_) return Push::Ok;
    const KindRule* rule = find_rule(kDataKinds, kind);
    PACE_CHECK(rule != nullptr, "a message of a kind that does not exist");
    PACE_CHECK(bytes.size() >= rule->bytes_min && bytes.size() <= rule->bytes_max,
               "a message whose length is not its kind's");
    SimCore& core = site_.core;
    for (Out& out : out_) {
        SimChannel& channel = *out.channel;
        if (channel.spec.to != to || channel.spec.from != from) continue;
        if (!channel.has_room(rule->urgency)) {
            out.wants_room = true;
            return Push::Full;
        }
        const SimTime hop = site_.timing.hop(channel.spec, msg::rows_of(kind, bytes), core.random);
        const SimTime arrives = channel.push(core.now + hop, kind, bytes);
        core.note(std::uint64_t{kind} << 32U | to.value, channel.from.epoch.value);
        tell([&] {
            return fmt::format("-> {} {}{}", to.value, describe_frame(kind, bytes),
                               (channel.read ? "" : " (not read)"));
        });
        if (channel.read) {
            site_.process(channel.to.serial).wake(arrives);
        } else {
            count(Counter::FramesStale, 1);
        }
        if (sends_left_ && (*sends_left_)-- <= 1) doomed_ = true;
        return Push::Ok;
    }
    PACE_CHECK(absent_.contains(to), "a message to a stage without a channel to it");
    count(Counter::FramesStale, 1);
    return Push::Ok;
}

void SimProcess::post(StageId from, StageId to, const control::Message& message) {
    const AllocationPause pause{site_};
    if (doomed_) return;
    if (serial_ == 0) return site_.post(from, to, message);
    PACE_CHECK(to == kConductor, "a stage's control messages go to the conductor");
    report(SimMail{to, from, message});
}

Epoch SimProcess::epoch_of(StageId /*self*/, StageId peer) const {
    for (const Out& out : out_) {
        if (out.channel->spec.to == peer) return out.channel->to.epoch;
    }
    for (const auto& channel : in_) {
        if (channel->spec.from == peer) return channel->from.epoch;
    }
    return Epoch{0};
}

void SimProcess::report_fault(StageId self, StageId peer, Error error) {
    const AllocationPause pause{site_};
    tell([&] { return fmt::format("finds a fault of {}: {}", peer.value, error.what); });
    faulty_.push_back({peer, epoch_of(self, peer), std::move(error)});
}

TensorProducer* SimProcess::tensors_to(StageId self, StageId to) {
    for (Out& out : out_) {
        SimChannel& channel = *out.channel;
        if (channel.spec.to == to && channel.spec.from == self && channel.producer) {
            return &*channel.producer;
        }
    }
    return nullptr;
}

TensorConsumer* SimProcess::tensors_from(StageId self, StageId from) {
    for (const auto& channel : in_) {
        if (channel->spec.from == from && channel->spec.to == self && channel->consumer) {
            return &*channel->consumer;
        }
    }
    return nullptr;
}

void SimProcess::trace(TraceEvent event) {
    if (!site_.tracing) return;
    const AllocationPause pause{site_};
    event.time_us = now().count();
    trace_.push_back(event);
}

void SimProcess::count(Counter counter, std::uint64_t add) {
    counters_[static_cast<std::size_t>(counter)] += add;
}

const std::atomic<std::uint64_t>* SimProcess::cancel_word(RequestId request) {
    return &site_.board[request.value % kCancelLines];
}

void SimProcess::cancel_before(RequestId request, Attempt valid) {
    site_.board[request.value % kCancelLines].store(CancelBoard::mark_of(request, valid),
                                                    std::memory_order_relaxed);
}

// ---- the connection ----

void SimProcess::receive(SimMessage message) {
    if (life_ == Life::Ended) return;
    SimCore& core = site_.core;
    // The conductor's own news come to it at once.
    const SimTime delay = serial_ == 0 ? SimTime{0} : site_.timing.control_hop(core.random);
    control_last_ = std::max(core.now + delay, control_last_);
    control_.push_back({control_last_, std::move(message)});
    wake(control_last_);
}

void SimProcess::report(SimReport report) {
    const AllocationPause pause{site_};
    SimCore& core = site_.core;
    report_last_ = std::max(core.now + site_.timing.news(core.random), report_last_);
    reports_.push_back(std::move(report));
    core.push(report_last_, SimEventKind::ControlUp, serial_);
}

SimReport SimProcess::take_report() {
    PACE_CHECK(!reports_.empty(), "an event for a report that was not made");
    SimReport report = std::move(reports_.front());
    reports_.pop_front();
    return report;
}

void SimProcess::take(SimMessage message) {
    static constexpr std::array kNames{"a control message", "Wire", "Unwire", "Rewire", "Joined"};
    tell([&] { return "takes " + std::string{kNames[message.index()]}; });
    if (auto* mail = std::get_if<SimMail>(&message)) {
        host_->control(mail->to, mail->from, mail->message);
    } else if (auto* wire = std::get_if<SimWire>(&message)) {
        start(std::move(*wire));
        report(SimReady{});
    } else if (auto* lost = std::get_if<SimUnwire>(&message)) {
        for (const StageId peer : lost->peers) lose(peer);
    } else if (auto* wired = std::get_if<SimRewire>(&message)) {
        // First retire the channels of the earlier incarnation, and report its loss if that has not
        // been done.
        for (const StageId peer : wired->peers) lose(peer);
        add_channels(wired->channels);
        if (serial_ == 0) return;
        report(SimRewired{wired->peers.front(), wired->epoch});
        for (const StageId peer : wired->peers) host_->peer(peer, PeerChange::Joined);
    } else if (auto* joined = std::get_if<SimJoined>(&message)) {
        for (const StageId peer : joined->peers) host_->peer(peer, PeerChange::Joined);
    }
}

void SimProcess::add_channels(const SimChannels& channels) {
    const AllocationPause pause{site_};
    for (const auto& channel : channels) {
        const auto& own = spec_.process.actors;
        if (std::find(own.begin(), own.end(), channel->spec.from) != own.end()) {
            absent_.erase(channel->spec.to);
            out_.push_back({channel});
        } else {
            absent_.erase(channel->spec.from);
            in_.push_back(channel);
        }
    }
}

void SimProcess::close_channels(StageId peer) {
    const auto goes = [peer](const std::shared_ptr<SimChannel>& channel) {
        return channel->spec.from == peer || channel->spec.to == peer;
    };
    for (const Out& out : out_) {
        if (goes(out.channel)) retired_.push_back(out.channel);
    }
    for (const auto& in : in_) {
        if (!goes(in)) continue;
        in->read = false;
        retired_.push_back(in);
    }
    std::erase_if(out_, [&](const Out& out) { return goes(out.channel); });
    std::erase_if(in_, goes);
}

void SimProcess::lose(StageId peer) {
    bool is_news = false;
    {
        const AllocationPause pause{site_};
        close_channels(peer);
        is_news = absent_.insert(peer).second;
    }
    if (is_news) host_->peer(peer, PeerChange::Lost);
}

bool SimProcess::is_faulty(StageId peer) const {
    return std::any_of(faulty_.begin(), faulty_.end(),
                       [peer](const SimEdgeFault& fault) { return fault.peer == peer; });
}

/// Once no handler runs: the channels with those that broke their rules are closed.
bool SimProcess::lose_faulty() {
    bool any = false;
    for (SimEdgeFault& fault : std::exchange(faulty_, {})) {
        if (absent_.contains(fault.peer)) continue;
        lose(fault.peer);
        any = true;
        if (serial_ == 0) {
            site_.report_fault(fault);
        } else {
            report(std::move(fault));
        }
    }
    return any;
}

void SimProcess::bury_retired() {
    if (!busy_ && host_->jobs().empty() && !host_->has_mail()) retired_.clear();
}

// ---- faults ----

void SimProcess::freeze(SimTime until) {
    frozen_until_ = std::max(frozen_until_, until);
    ++freezes_;
    site_.core.push(frozen_until_, SimEventKind::Thaw, serial_);
}

void SimProcess::suspend(SimTime until, SimTime gap) {
    freeze(until);
    if (life_ == Life::Loading) {
        load_ends_ += gap;
        site_.core.push(load_ends_, SimEventKind::Loaded, serial_, ++load_);
    }
    if (!busy_) return;
    job_ends_ += gap;
    site_.core.push(job_ends_, SimEventKind::JobDone, serial_, ++job_);
    if (!jobs_ || job_ends_ <= jobs_->snapshot().deadline) return;
    site_.core.push(jobs_->snapshot().deadline, SimEventKind::Overdue, serial_);
}

void SimProcess::thaw() {
    if (life_ == Life::Ended || frozen()) return;
    tell([] { return std::string{"goes on"}; });
    run_until_blocked();
}

void SimProcess::slow_down(std::uint32_t factor, SimTime until) {
    slow_ = factor;
    slow_until_ = until;
}

}  // namespace paceline

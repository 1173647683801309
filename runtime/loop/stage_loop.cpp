#include "runtime/loop/stage_loop.hpp"

#include <algorithm>
#include <random>
#include <utility>
#include <variant>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "runtime/loop/actor_host.hpp"
#include "runtime/loop/edge_links.hpp"
#include "runtime/loop/job_limits.hpp"
#include "runtime/loop/loop_calls.hpp"
#include "runtime/loop/peer_faults.hpp"
#include "runtime/loop/span_event.hpp"
#include "runtime/loop/stage_edges.hpp"

namespace paceline {
namespace {

Micros steady_now() {
    return std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

class StageLoop::Impl final : public HostEnvironment {
public:
    Impl(Wiring wiring, ControlPort& port, const StageLoopOptions& options)
        : wiring_{std::move(wiring)},
          options_{options},
          links_{options.device, wiring_.bell, std::chrono::milliseconds{wiring_.link_limit_ms}},
          edges_{wiring_},
          port_{port},
          limits_{*wiring_.telemetry, options.row_time} {
        PACE_CHECK(wiring_.telemetry != nullptr, "a wiring without telemetry");
        options_.poll_limit = std::clamp(options_.poll_limit, Micros{100}, Doorbell::kSleepMax);
        options_.burst = std::max(options_.burst, 1U);
    }

    // ---- HostEnvironment: what the actors reach beyond this process ----

    [[nodiscard]] Micros now() const override { return steady_now(); }
    [[nodiscard]] Push send(StageId from,
                            StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override;
    void post(StageId from, StageId to, const control::Message& message) override;
    [[nodiscard]] Epoch epoch_of(StageId /*self*/, StageId peer) const override {
        return edges_.epoch_of(peer);
    }
    void report_fault(StageId /*self*/, StageId peer, Error error) override {
        faults_.add("from", peer, error);
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId self, StageId to) override {
        return edges_.tensors_to(self, to);
    }
    [[nodiscard]] TensorConsumer* tensors_from(StageId self, StageId from) override {
        return edges_.tensors_from(self, from);
    }
    [[nodiscard]] std::uint64_t random() override { return random_(); }
    void trace(TraceEvent event) override;
    void count(Counter counter, std::uint64_t add) override {
        wiring_.telemetry->count(counter, add);
    }
    void set(Gauge gauge, std::uint64_t value) override { wiring_.telemetry->set(gauge, value); }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId request) override {
        return wiring_.board ? wiring_.board->word_of(request) : nullptr;
    }
    void cancel_before(RequestId request, Attempt valid) override {
        if (wiring_.board) wiring_.board->cancel_before(request, valid);
    }
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId request) override {
        return wiring_.board ? wiring_.board->watermark_of(request) : nullptr;
    }
    void publish_watermark(RequestId request,
                           Attempt attempt,
                           Position position,
                           TokenId token) override {
        if (wiring_.board) wiring_.board->publish_watermark(request, attempt, position, token);
    }
    void excuse_loss(StageId stage) override { port_.excuse_loss(stage); }

    [[nodiscard]] Status run();

    LoopCalls calls_;
    ActorHost host_{*this, ActorHost::Channels::OnDemand};
    Wiring wiring_;
    StageLoopOptions options_;

private:
    using Out = StageEdges::Out;
    using In = StageEdges::In;
    bool iterate();
    bool drain_all();
    bool drain(In& in);
    bool release_held(In& in);
    void handle(const In& in, std::uint16_t kind, std::span<const std::byte> payload);
    bool run_job();
    bool poll_control();
    void take(PortEvent event);
    bool call_rooms();
    [[nodiscard]] static bool room_found(Out& out) {
        return (out.wants_room && out.edge.ring.has_room(Urgency::Normal)) ||
               (out.wants_slot && out.edge.pool->has_room());
    }
    void wait();
    void report(const Status& status);
    void enter(Activity activity, Micros expected, std::uint32_t job = 0);
    void trace_span(TraceKind kind, Micros start, const JobLabel& label);

    void lose(StageId peer);
    bool lose_faulty();
    void look_for_fault(const Out& out);

    EdgeLinks links_;
    StageEdges edges_;  // after what links use: bell and links_
    ControlPort& port_;
    PeerFaults faults_;  // found in this round
    JobLimits limits_;
    std::uint32_t announced_seen_ = 0;
    Micros polled_at_{0};
    std::mt19937_64 random_{std::random_device{}()};
};

// ---- HostEnvironment ----

Push StageLoop::Impl::send(StageId from,
                           StageId to,
                           std::uint16_t kind,
                           std::span<const std::byte> bytes) {
    Out* out = edges_.find_out(from, to);
    if (out == nullptr) {
        PACE_CHECK(edges_.is_absent(to), "a message to a stage without a channel to it");
        count(Counter::FramesStale, 1);
        return Push::Ok;
    }
    if (out->edge.ring.try_push(kind, bytes) == Push::Full) {
        out->wants_room = true;
        count(Counter::ChannelFull, 1);
        trace({.kind = TraceKind::Full, .peer = to, .detail = kind, .self = from});
        return Push::Full;
    }
    out->has_news = true;
    EdgeLinks::announce(*out, kind, bytes);
    count(Counter::FramesOut, 1);
    trace({.kind = TraceKind::Send,
           .peer = to,
           .detail = kind,
           .self = from,
           .peer_epoch = out->edge.peer_epoch});
    return Push::Ok;
}

void StageLoop::Impl::post(StageId from, StageId to, const control::Message& message) {
    report(port_.send({from, to}, message));
}

void StageLoop::Impl::trace(TraceEvent event) {
    if (!wiring_.telemetry->traces()) return;
    event.time_us = steady_now().count();
    wiring_.telemetry->trace(event);
}

void StageLoop::Impl::trace_span(TraceKind kind, Micros start, const JobLabel& label) {
    if (!wiring_.telemetry->traces()) return;
    wiring_.telemetry->trace(span_event(kind, start, steady_now(), label));
}

void StageLoop::Impl::report(const Status& status) {
    if (!status.ok()) host_.fail(status.error());
}

void StageLoop::Impl::enter(Activity activity, Micros expected, std::uint32_t job) {
    const Micros slack = std::chrono::milliseconds{wiring_.hang_limit_ms};
    wiring_.telemetry->enter(activity, slack.count() == 0 ? slack : slack + expected, job);
}

// ---- peers ----

void StageLoop::Impl::lose(StageId peer) {
    if (!edges_.lose(peer, host_.jobs().submitted())) return;
    trace({.kind = TraceKind::PeerLost, .peer = peer});
    host_.peer(peer, PeerChange::Lost);
}

bool StageLoop::Impl::lose_faulty() {
    bool any = false;
    for (const auto& [peer, error] : faults_.take()) {
        // One report per peer: several of its channels may be broken, and a stage that reports
        // twice is replaced itself.
        if (edges_.is_absent(peer)) continue;
        const Epoch epoch = edges_.epoch_of(peer);
        lose(peer);
        report(port_.report_fault(peer, epoch, error));
        any = true;
    }
    return any;
}

/// A producer waits for room here. If the consumer has broken the layout there will never be any.
void StageLoop::Impl::look_for_fault(const Out& out) {
    Status fault = out.edge.ring.fault();
    if (fault.ok() && out.edge.pool) fault = out.edge.pool->fault();
    if (fault.ok()) return;
    faults_.add("to", out.edge.to, fault.error());
}

void StageLoop::Impl::take(PortEvent event) {
    if (auto* mail = std::get_if<PortMail>(&event)) {
        const bool ends = std::holds_alternative<control::Shutdown>(mail->message);
        if (ends && mail->envelope.from == kConductor) {
            fault_point(FaultPoint::Draining);
            return host_.stop();
        }
        StageId to = mail->envelope.to;
        if (!host_.hosts(to)) to = wiring_.self;
        host_.control(to, mail->envelope.from, mail->message);
    } else if (auto* lost = std::get_if<PeersLost>(&event)) {
        for (const StageId peer : lost->peers) lose(peer);
    } else if (auto* wired = std::get_if<PeersWired>(&event)) {
        fault_point(FaultPoint::PeerWired);
        // First retire the channels of the earlier incarnation, and report its loss if that has not
        // been done.
        for (const StageId peer : wired->peers) lose(peer);
        edges_.add(std::move(wired->out), std::move(wired->in));
        report(port_.wired(wired->peers.front(), wired->epoch));
        report(links_.attach(edges_, port_, steady_now()));
    } else if (auto* joined = std::get_if<PeersJoined>(&event)) {
        for (const StageId peer : joined->peers) {
            trace({.kind = TraceKind::PeerJoined, .peer = peer});
            host_.peer(peer, PeerChange::Joined);
        }
    } else if (auto* offered = std::get_if<LinkOffered>(&event)) {
        report(links_.take(edges_, std::move(*offered)));
    }
}

// ---- iterations ----

Status StageLoop::Impl::run() {
    enter(Activity::Handling, Micros{0});
    report(links_.attach(edges_, port_, steady_now()));
    host_.start();
    edges_.ring_bells();
    while (!host_.ended()) {
        if (!iterate() && !host_.ended()) wait();
    }
    edges_.ring_bells();
    wiring_.telemetry->enter(Activity::Ended, Micros{0});
    return host_.outcome();
}

/// One round of everything that can be done without waiting; false if there was nothing.
bool StageLoop::Impl::iterate() {
    enter(Activity::Handling, Micros{0});
    bool any = steady_now() - polled_at_ >= options_.poll_limit && poll_control();
    report(links_.poll_if_due(edges_, steady_now()));
    any = calls_.run() || any;
    any = drain_all() || any;
    any = host_.deliver_round() || any;
    any = call_rooms() || any;
    any = host_.call_rooms() || any;
    any = host_.run_timers() || any;
    edges_.ring_bells();
    // Jobs come last, so that they see the newest messages.
    if (!host_.jobs().empty() && !host_.has_mail()) any = run_job() || any;
    // Handlers and jobs release slots; the producer is woken at the end of the iteration.
    edges_.ring_for_slots();
    any = lose_faulty() || any;
    edges_.ring_bells();
    edges_.bury_retired(host_.jobs().finished());
    return any;
}

bool StageLoop::Impl::run_job() {
    const JobLabel label = *host_.jobs().first();
    enter(Activity::Computing, limits_.expected(label), job_name_index(label.name));
    const Micros start = steady_now();
    const bool ran = host_.run_job();
    const Micros took = steady_now() - start;
    limits_.note(label, took, host_.jobs().last_outcome());
    enter(Activity::Handling, Micros{0});
    count(Counter::Jobs, 1);
    count(Counter::JobMicros, static_cast<std::uint64_t>(took.count()));
    trace_span(TraceKind::Job, start, label);
    return ran;
}

bool StageLoop::Impl::drain_all() {
    bool any = false;
    // By index: a control message that comes before a frame may close or add edges.
    const auto& in = edges_.in();
    for (std::size_t i = 0; i < in.size() && !host_.ended(); ++i) any = drain(*in[i]) || any;
    return any;
}

void StageLoop::Impl::handle(const In& in, std::uint16_t kind, std::span<const std::byte> payload) {
    host_.handle(in.edge.to, in.edge.from, kind, payload);
    count(Counter::FramesIn, 1);
}

bool StageLoop::Impl::drain(In& in) {
    InEdge& edge = in.edge;
    const std::span<std::byte> buffer = edges_.frame_buffer();
    bool any = release_held(in);
    for (std::uint32_t i = 0; i < options_.burst && !in.held && !host_.ended(); ++i) {
        if (faults_.has(edge.from)) break;  // what follows is of the same sender
        // The control message that caused a frame, if there is one, was announced before the frame
        // was published: it is seen now, and handled first. It may close this very edge.
        if (edge.ring.has_frame() && wiring_.bell.announced() != announced_seen_) {
            poll_control();
            return true;
        }
        const std::uint64_t stale = edge.ring.stale_frames();
        const Popped popped = edge.ring.try_pop(buffer);
        if (edge.ring.stale_frames() != stale) {
            count(Counter::FramesStale, edge.ring.stale_frames() - stale);
        }
        if (popped.outcome == Pop::Empty) break;
        if (popped.outcome == Pop::Corrupt) {
            faults_.add("from", edge.from, edge.ring.fault().error());
            break;
        }
        trace({.kind = TraceKind::Receive,
               .peer = edge.from,
               .detail = popped.kind,
               .self = edge.to,
               .peer_epoch = edge.peer_epoch});
        any = true;
        if (EdgeLinks::hold(in, popped)) {
            release_held(in);
        } else {
            handle(in, popped.kind, popped.payload);
        }
    }
    // Also when all that was taken were frames of an old epoch.
    if (edge.ring.take_room_wanted()) edge.bell.ring();
    if (any) edges_.ring_bells();
    return any;
}

/// Hands the held frame to its actor once its tensor is there.
bool StageLoop::Impl::release_held(In& in) {
    if (!in.held || host_.ended() || faults_.has(in.edge.from)) return false;
    const Result<bool> arrived = EdgeLinks::has_arrived(in);
    if (!arrived.ok()) {
        faults_.add("from", in.edge.from, arrived.error());
        return false;
    }
    if (!arrived.value()) return false;
    const StageEdges::HeldFrame frame = std::move(*std::exchange(in.held, std::nullopt));
    handle(in, frame.kind, frame.payload);
    return true;
}

bool StageLoop::Impl::poll_control() {
    polled_at_ = steady_now();
    announced_seen_ = wiring_.bell.announced();
    bool any = false;
    report(port_.poll([this, &any](PortEvent event) {
        any = true;
        take(std::move(event));
    }));
    return any;
}

bool StageLoop::Impl::call_rooms() {
    bool any = false;
    for (const auto& each : edges_.out()) {
        if (host_.ended()) break;
        Out& out = *each;
        if (out.edge.pool && out.edge.pool->take_starved()) {
            out.wants_slot = true;
            count(Counter::ChannelFull, 1);
        }
        if (!out.wants_room && !out.wants_slot) continue;
        if (!room_found(out)) {
            look_for_fault(out);
            continue;
        }
        out.wants_room = out.wants_room && !out.edge.ring.has_room(Urgency::Normal);
        out.wants_slot = out.wants_slot && !out.edge.pool->has_room();
        host_.room(out.edge.from, out.edge.to);
        any = true;
    }
    return any;
}

void StageLoop::Impl::wait() {
    for (const auto& out : edges_.out()) {
        if (out->wants_room) out->edge.ring.want_room();
        if (out->wants_slot) out->edge.pool->want_room();
    }
    const auto ready = [this] {
        if (links_.has_news() || EdgeLinks::has_input(edges_)) return true;
        for (const auto& out : edges_.out()) {
            if (room_found(*out)) return true;
        }
        return wiring_.bell.announced() != announced_seen_;
    };
    const Micros start = steady_now();
    Micros limit = options_.poll_limit;
    if (const auto timer = host_.next_timer()) limit = std::min(limit, *timer - start);
    if (const auto due = links_.due()) limit = std::min(limit, std::max(*due - start, Micros{0}));
    enter(Activity::Waiting, limit);
    bool slept = false;
    const bool woken =
        wiring_.bell.wait(ready, std::min(Micros{wiring_.spin_micros}, limit), limit, &slept);
    count(Counter::WaitMicros, static_cast<std::uint64_t>((steady_now() - start).count()));
    count(Counter::Sleeps, slept ? 1 : 0);
    trace_span(TraceKind::Wait, start, {});
    // Announced, or woken by nothing in the rings: a timer, a signal, the time limit.
    if (!woken || wiring_.bell.announced() != announced_seen_) poll_control();
}

StageLoop::StageLoop(Wiring wiring, ControlPort& port, const StageLoopOptions& options)
    : impl_{std::make_unique<Impl>(std::move(wiring), port, options)} {}
StageLoop::~StageLoop() = default;

void StageLoop::add(StageId id, Actor& actor) {
    impl_->host_.add(id, impl_->wiring_.epoch, actor);
}

Status StageLoop::connect(const EdgeSpec& edge) {
    return impl_->host_.connect(edge, impl_->options_.device);
}

Status StageLoop::run() {
    PACE_CHECK(impl_->host_.hosts(impl_->wiring_.self), "a loop without an actor of its own");
    return impl_->run();
}

void StageLoop::post(std::function<void()> call) {
    impl_->calls_.add(std::move(call));
    impl_->wiring_.bell.announce();
}

void StageLoop::run_posted() {
    (void)impl_->calls_.run();
}

StageTelemetry& StageLoop::telemetry() {
    return *impl_->wiring_.telemetry;
}

}  // namespace paceline

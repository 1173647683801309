#include "runtime/stage_loop.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/base/check.hpp"
#include "runtime/actor_host.hpp"

namespace paceline {
namespace {

Micros steady_now() {
    return std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now().time_since_epoch());
}

Error in_channel(const char* direction, StageId peer, const Error& error) {
    return {error.code, "channel " + std::string{direction} + " stage " +
                            std::to_string(peer.value) + ": " + error.what};
}

}  // namespace

class StageLoop::Impl final : public Outside {
public:
    Impl(Wiring wiring, ControlPort& port, const StageLoopOptions& options)
        : wiring_{std::move(wiring)}, port_{port}, options_{options}, edges_(wiring_.out.size()) {
        options_.poll_limit = std::clamp(options_.poll_limit, Micros{100}, Doorbell::kSleepMax);
        options_.burst = std::max(options_.burst, 1U);
        std::uint32_t longest = 1;
        for (const InEdge& edge : wiring_.in)
            longest = std::max(longest, edge.ring.payload_bytes());
        buffer_.resize(longest / sizeof(Chunk) + 1);
    }

    // ---- Outside: what the actors reach beyond this process ----

    [[nodiscard]] Micros now() const override { return steady_now(); }
    [[nodiscard]] Push send(StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override;
    void post(StageId from, StageId to, const control::Message& message) override;
    [[nodiscard]] TensorProducer* tensors_to(StageId to) override;
    [[nodiscard]] TensorConsumer* tensors_from(StageId from) override;

    [[nodiscard]] Status run();

    ActorHost host_{*this, ActorHost::Channels::OnDemand};
    Wiring wiring_;
    StageLoopCounters counters_;

private:
    /// What the loop remembers about an outgoing edge between turns.
    struct EdgeState {
        bool has_news = false;    // published since the peer's doorbell was rung
        bool wants_room = false;  // a send met Full
        bool wants_slot = false;  // the tensor pool had no free slot
    };
    /// Frames are copied into this; aligned for every message.
    struct alignas(64) Chunk {
        std::byte bytes[64];
    };

    bool turn();
    bool drain(InEdge& edge);
    bool poll_control();
    bool call_rooms();
    [[nodiscard]] bool room_found(std::size_t index);
    void ring_bells();
    void ring_for_room(InEdge& edge);
    void wait();
    void report(const Status& status);

    ControlPort& port_;
    StageLoopOptions options_;
    std::vector<EdgeState> edges_;  // parallel to wiring_.out
    std::vector<Chunk> buffer_;
    std::uint32_t announced_seen_ = 0;
    Micros polled_at_{0};
};

Push StageLoop::Impl::send(StageId to, std::uint16_t kind, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < edges_.size(); ++i) {
        OutEdge& edge = wiring_.out[i];
        if (edge.to != to) continue;
        if (edge.ring.try_push(kind, bytes) == Push::Full) {
            edges_[i].wants_room = true;
            ++counters_.full;
            const Status fault = edge.ring.fault();
            if (!fault.ok()) host_.fail(in_channel("to", to, fault.error()));
            return Push::Full;
        }
        edges_[i].has_news = true;
        ++counters_.frames_out;
        return Push::Ok;
    }
    PACE_CHECK(false, "a message to a stage without a channel to it");
    return Push::Full;
}

void StageLoop::Impl::post([[maybe_unused]] StageId from,
                           StageId to,
                           const control::Message& message) {
    report(port_.send(to, message));
}

TensorProducer* StageLoop::Impl::tensors_to(StageId to) {
    for (OutEdge& edge : wiring_.out) {
        if (edge.to == to && edge.pool) return &*edge.pool;
    }
    return nullptr;
}

TensorConsumer* StageLoop::Impl::tensors_from(StageId from) {
    for (InEdge& edge : wiring_.in) {
        if (edge.from == from && edge.pool) return &*edge.pool;
    }
    return nullptr;
}

void StageLoop::Impl::report(const Status& status) {
    if (!status.ok()) host_.fail(status.error());
}

Status StageLoop::Impl::run() {
    host_.start();
    ring_bells();
    while (!host_.ended()) {
        if (!turn() && !host_.ended()) wait();
    }
    ring_bells();
    return host_.outcome();
}

/// One round of everything that can be done without waiting; false if there was nothing.
bool StageLoop::Impl::turn() {
    bool any = false;
    if (steady_now() - polled_at_ >= options_.poll_limit) any = poll_control();
    for (InEdge& edge : wiring_.in) any = drain(edge) || any;
    any = host_.deliver_round() || any;
    any = call_rooms() || any;
    any = host_.call_rooms() || any;
    any = host_.run_timers() || any;
    ring_bells();
    // A job comes last: it should know the newest that the others have said.
    if (host_.has_job() && !host_.has_mail()) {
        const Micros start = steady_now();
        any = host_.run_job() || any;
        counters_.job_time += steady_now() - start;
        ++counters_.jobs;
    }
    for (InEdge& edge : wiring_.in) ring_for_room(edge);
    ring_bells();
    return any;
}

bool StageLoop::Impl::drain(InEdge& edge) {
    const std::span<std::byte> buffer{buffer_.front().bytes, buffer_.size() * sizeof(Chunk)};
    bool any = false;
    for (std::uint32_t i = 0; i < options_.burst && !host_.ended(); ++i) {
        const Popped popped = edge.ring.try_pop(buffer);
        if (popped.outcome == Pop::Empty) break;
        if (popped.outcome == Pop::Corrupt) {
            host_.fail(in_channel("from", edge.from, edge.ring.fault().error()));
            break;
        }
        // The cold message that caused this frame, if there is one, was announced before the
        // frame was published: it is seen now, and handled first.
        if (wiring_.bell.announced() != announced_seen_) poll_control();
        host_.handle(wiring_.self, edge.from, popped.kind, popped.payload);
        ++counters_.frames_in;
        any = true;
    }
    counters_.stale_frames = 0;
    for (const InEdge& in : wiring_.in) counters_.stale_frames += in.ring.stale_frames();
    if (any) {
        if (edge.ring.take_room_wanted()) edge.bell.ring();
        ring_bells();
    }
    return any;
}

/// Slots are released by handlers and by jobs; the producer hears of it at the end of the turn.
void StageLoop::Impl::ring_for_room(InEdge& edge) {
    if (edge.pool && edge.pool->take_room_wanted()) edge.bell.ring();
}

bool StageLoop::Impl::poll_control() {
    polled_at_ = steady_now();
    announced_seen_ = wiring_.bell.announced();
    bool any = false;
    report(port_.poll([this, &any](StageId from, const control::Message& message) {
        any = true;
        if (from == kConductor && std::holds_alternative<control::Shutdown>(message)) {
            host_.stop();
        } else {
            host_.control(wiring_.self, from, message);
        }
    }));
    return any;
}

bool StageLoop::Impl::room_found(std::size_t index) {
    OutEdge& edge = wiring_.out[index];
    const EdgeState& state = edges_[index];
    return (state.wants_room && edge.ring.has_room(Urgency::Normal)) ||
           (state.wants_slot && edge.pool->has_room());
}

bool StageLoop::Impl::call_rooms() {
    bool any = false;
    for (std::size_t i = 0; i < edges_.size() && !host_.ended(); ++i) {
        OutEdge& edge = wiring_.out[i];
        if (edge.pool && edge.pool->take_starved()) {
            edges_[i].wants_slot = true;
            const Status fault = edge.pool->fault();
            if (!fault.ok()) host_.fail(in_channel("to", edge.to, fault.error()));
        }
        if (!room_found(i)) continue;
        edges_[i].wants_room = edges_[i].wants_room && !edge.ring.has_room(Urgency::Normal);
        edges_[i].wants_slot = edges_[i].wants_slot && !edge.pool->has_room();
        host_.room(wiring_.self, edge.to);
        any = true;
    }
    return any;
}

/// Once per handler and receiver instead of once per message: a batch is one ring.
void StageLoop::Impl::ring_bells() {
    for (std::size_t i = 0; i < edges_.size(); ++i) {
        if (std::exchange(edges_[i].has_news, false)) wiring_.out[i].bell.ring();
    }
}

void StageLoop::Impl::wait() {
    for (std::size_t i = 0; i < edges_.size(); ++i) {
        if (edges_[i].wants_room) wiring_.out[i].ring.want_room();
        if (edges_[i].wants_slot) wiring_.out[i].pool->want_room();
    }
    const auto ready = [this] {
        for (const InEdge& edge : wiring_.in) {
            if (edge.ring.has_frame()) return true;
        }
        for (std::size_t i = 0; i < edges_.size(); ++i) {
            if (room_found(i)) return true;
        }
        return wiring_.bell.announced() != announced_seen_;
    };
    const Micros start = steady_now();
    Micros limit = options_.poll_limit;
    if (const auto timer = host_.next_timer()) limit = std::min(limit, *timer - start);
    bool slept = false;
    const bool woken =
        wiring_.bell.wait(ready, std::min(Micros{wiring_.spin_micros}, limit), limit, &slept);
    counters_.wait_time += steady_now() - start;
    counters_.sleeps += slept ? 1 : 0;
    // Announced, or woken by nothing in the rings: a timer, a signal, the time limit.
    if (!woken || wiring_.bell.announced() != announced_seen_) poll_control();
}

StageLoop::StageLoop(Wiring wiring, ControlPort& port, const StageLoopOptions& options)
    : impl_{std::make_unique<Impl>(std::move(wiring), port, options)} {}
StageLoop::~StageLoop() = default;

void StageLoop::add(StageId id, Actor& actor) {
    impl_->host_.add(id, impl_->wiring_.epoch, actor);
}

Status StageLoop::run() {
    PACE_CHECK(impl_->host_.hosts(impl_->wiring_.self), "a loop without an actor of its own");
    return impl_->run();
}

const StageLoopCounters& StageLoop::counters() const {
    return impl_->counters_;
}

}  // namespace paceline

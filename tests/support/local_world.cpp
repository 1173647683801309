#include "tests/support/local_world.hpp"

#include <random>
#include <thread>
#include <utility>

#include "ipc/base/check.hpp"
#include "runtime/loop/actor_host.hpp"
#include "runtime/observe/stage_telemetry.hpp"

namespace paceline {
namespace {

Micros steady_now() {
    return std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now().time_since_epoch());
}

constexpr Micros kNapMax{10'000};  // between two looks at `give_up` while nothing happens

}  // namespace

class LocalWorld::Impl final : public HostEnvironment {
public:
    explicit Impl(Clock clock) : clock_{clock} {}

    [[nodiscard]] Micros now() const override {
        return clock_ == Clock::Virtual ? virtual_now_ : steady_now();
    }
    [[nodiscard]] Push send(StageId /*from*/,
                            StageId /*to*/,
                            std::uint16_t /*kind*/,
                            std::span<const std::byte> /*bytes*/) override {
        PACE_CHECK(false, "a message to an actor that was not added to the world");
        return Push::Full;
    }
    void post(StageId /*from*/, StageId /*to*/, const control::Message& /*message*/) override {
        PACE_CHECK(false, "a control message to an actor that was not added to the world");
    }
    [[nodiscard]] Epoch epoch_of(StageId /*self*/, StageId /*peer*/) const override {
        return Epoch{0};
    }
    void report_fault(StageId /*self*/, StageId /*peer*/, Error /*error*/) override {
        PACE_CHECK(false, "a fault of an actor that was not added to the world");
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId /*self*/, StageId /*to*/) override {
        return nullptr;
    }
    [[nodiscard]] TensorConsumer* tensors_from(StageId /*self*/, StageId /*from*/) override {
        return nullptr;
    }
    [[nodiscard]] std::uint64_t random() override { return random_(); }
    void trace(TraceEvent event) override {
        event.time_us = now().count();
        telemetry_.trace(event);
    }
    void count(Counter counter, std::uint64_t add) override { telemetry_.count(counter, add); }
    void set(Gauge gauge, std::uint64_t value) override { telemetry_.set(gauge, value); }
    /// One thread: nothing can happen during a job.
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId /*request*/) override {
        return nullptr;
    }
    void cancel_before(RequestId /*request*/, Attempt /*valid*/) override {}
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId /*request*/) override {
        return nullptr;
    }
    void publish_watermark(RequestId /*request*/,
                           Attempt /*attempt*/,
                           Position /*position*/,
                           TokenId /*token*/) override {}

    /// One step of the world; false if there was nothing to do.
    bool turn() {
        bool any = host_.deliver_round();
        any = host_.call_rooms() || any;
        any = host_.run_timers() || any;
        return any || host_.run_job();
    }
    /// Lets time pass up to the next timer; false if nothing can ever happen again.
    bool idle() {
        const std::optional<Micros> next = host_.next_timer();
        if (clock_ == Clock::Virtual) {
            if (next) virtual_now_ = *next;
            return next.has_value();
        }
        const Micros left = next ? *next - now() : kNapMax;
        std::this_thread::sleep_for(std::min(left, kNapMax));
        return true;
    }

    ActorHost host_{*this, ActorHost::Channels::Connected};

private:
    Clock clock_;
    Micros virtual_now_{0};
    std::mt19937_64 random_{1};  // a fixed seed: the same run every time
    StageTelemetry telemetry_ = StageTelemetry::local(kConductor, Epoch{1}, "local");
};

LocalWorld::LocalWorld(Clock clock) : impl_{std::make_unique<Impl>(clock)} {}
LocalWorld::~LocalWorld() = default;

void LocalWorld::add(StageId id, Actor& actor) {
    impl_->host_.add(id, Epoch{1}, actor);
}

void LocalWorld::connect(const EdgeSpec& edge) {
    const Status connected = impl_->host_.connect(edge);
    PACE_CHECK(connected.ok(), "a channel of the host needs no device");
}

void LocalWorld::post(StageId from, StageId to, control::Message message) {
    impl_->host_.queue_control(to, from, std::move(message));
}

Status LocalWorld::run(const std::function<bool()>& give_up) {
    ActorHost& host = impl_->host_;
    host.start();
    while (!host.ended()) {
        if (give_up && give_up()) return Error{Errc::Cancelled, "the run was given up"};
        if (!impl_->turn() && !host.ended() && !impl_->idle()) break;
    }
    return host.outcome();
}

}  // namespace paceline

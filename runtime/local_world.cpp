#include "runtime/local_world.hpp"

#include <thread>
#include <utility>

#include "ipc/base/check.hpp"
#include "runtime/actor_host.hpp"

namespace paceline {
namespace {

Micros steady_now() {
    return std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now().time_since_epoch());
}

constexpr Micros kNapMax{10'000};  // between two looks at `give_up` while nothing happens

}  // namespace

class LocalWorld::Impl final : public Outside {
public:
    explicit Impl(Clock clock) : clock_{clock} {}

    [[nodiscard]] Micros now() const override {
        return clock_ == Clock::Virtual ? virtual_now_ : steady_now();
    }
    [[nodiscard]] Push send([[maybe_unused]] StageId to,
                            [[maybe_unused]] std::uint16_t kind,
                            [[maybe_unused]] std::span<const std::byte> bytes) override {
        PACE_CHECK(false, "a message to an actor that was not added to the world");
        return Push::Full;
    }
    void post([[maybe_unused]] StageId from,
              [[maybe_unused]] StageId to,
              [[maybe_unused]] const control::Message& message) override {
        PACE_CHECK(false, "a control message to an actor that was not added to the world");
    }
    [[nodiscard]] TensorProducer* tensors_to([[maybe_unused]] StageId to) override {
        return nullptr;
    }
    [[nodiscard]] TensorConsumer* tensors_from([[maybe_unused]] StageId from) override {
        return nullptr;
    }

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
};

LocalWorld::LocalWorld(Clock clock) : impl_{std::make_unique<Impl>(clock)} {}
LocalWorld::~LocalWorld() = default;

void LocalWorld::add(StageId id, Actor& actor) {
    impl_->host_.add(id, Epoch{1}, actor);
}

void LocalWorld::connect(const EdgeSpec& edge) {
    impl_->host_.connect(edge);
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

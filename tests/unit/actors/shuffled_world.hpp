// ShuffledWorld: actors on one thread, with every order of events that real processes could
// have, chosen by a seed.
//
// Each step delivers the oldest message of a random channel, ends a random job, or lets a timer
// fire; time passes by random amounts. Channels are small, so that "full" is met; verdicts and
// stops have reserved room. A job's work is done at once or just before its end, and its stage
// hears of the end later. The same seed gives the same order.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "ipc/messages.hpp"
#include "ipc/tensor_pool.hpp"
#include "runtime/actor.hpp"

namespace paceline::testing {

class ShuffledWorld {
public:
    explicit ShuffledWorld(std::uint64_t seed) : random_{seed} {}

    void add(StageId id, Actor& actor) { stages_[id] = std::make_unique<Stage>(*this, id, actor); }
    void connect_tensors(StageId from, StageId to, std::uint32_t slots, std::size_t slot_bytes) {
        const std::size_t bytes = pool_bytes(slots, slot_bytes).value();
        auto pool = std::make_unique<Pool>();
        pool->memory.resize(bytes / sizeof(Line) + 1);
        const std::span<std::byte> memory{reinterpret_cast<std::byte*>(pool->memory.data()), bytes};
        format_pool(memory, slots, slot_bytes);
        pool->slots = slots;
        pool->producer.emplace(TensorProducer::attach_memory(memory).value());
        pool->consumer.emplace(TensorConsumer::attach_memory(memory).value());
        pools_[{from, to}] = std::move(pool);
    }
    void post(StageId to, control::Message message) {
        Stage& stage = *stages_.at(to);
        stage.cold.push_back(std::move(message));
    }
    void start() {
        for (auto& [id, stage] : stages_) stage->actor.on_start(*stage);
    }
    /// Until nothing can happen any more, `done` answers true, or an actor failed.
    void run(const std::function<bool()>& done) {
        while (!failure && !done() && step()) {
        }
    }
    /// A hot message out of nowhere, as if `from` had sent it.
    template <class M>
    void inject(StageId from, StageId to, const M& message) {
        push(from, to, static_cast<std::uint16_t>(M::kKind), std::as_bytes(std::span{&message, 1}));
    }
    [[nodiscard]] bool tensors_all_free() {
        for (auto& [edge, pool] : pools_) {
            std::vector<PoolRef> taken;
            while (const auto slot = pool->producer->acquire()) taken.push_back(*slot);
            for (const PoolRef slot : taken) pool->producer->abandon(slot);
            // An actor may keep one slot acquired for its next wave.
            if (taken.size() + 1 < pool->slots) return false;
        }
        return true;
    }

    std::optional<Error> failure;
    Micros now{0};
    std::size_t channel_room = 3;

private:
    struct alignas(128) Line {
        std::byte bytes[128];
    };
    struct Pool {
        std::vector<Line> memory;
        std::optional<TensorProducer> producer;
        std::optional<TensorConsumer> consumer;
        std::uint32_t slots = 0;
    };
    struct Letter {
        std::uint16_t kind;
        std::vector<std::byte> bytes;
    };
    struct Job {
        std::function<JobOutcome()> work;
        std::function<void(JobOutcome)> done;
    };
    struct Stage final : StageContext {
        Stage(ShuffledWorld& the_world, StageId the_id, Actor& the_actor)
            : world{the_world}, id{the_id}, actor{the_actor} {}
        [[nodiscard]] Micros now() const override { return world.now; }
        [[nodiscard]] Push send(StageId to,
                                std::uint16_t kind,
                                std::span<const std::byte> bytes) override {
            const bool urgent = kind >= static_cast<std::uint16_t>(msg::Kind::Verdict);
            if (!urgent && world.channels_[{id, to}].size() >= world.channel_room) {
                wants_room.push_back(to);
                return Push::Full;
            }
            world.push(id, to, kind, bytes);
            return Push::Ok;
        }
        void schedule(Micros delay, std::function<void()> wake) override {
            world.timers_.emplace(world.now + delay, std::move(wake));
        }
        void submit(std::function<JobOutcome()> work,
                    std::function<void(JobOutcome)> done) override {
            // A job may be through before its stage hears of anything else, or after much else.
            if (std::bernoulli_distribution{0.5}(world.random_)) {
                const JobOutcome outcome = work();
                work = [outcome] { return outcome; };
            }
            jobs.push_back({std::move(work), std::move(done)});
        }
        [[nodiscard]] StageId self() const override { return id; }
        [[nodiscard]] Epoch epoch() const override { return Epoch{1}; }
        void post(StageId to, const control::Message& message) override { world.post(to, message); }
        [[nodiscard]] TensorProducer* tensors_to(StageId to) override {
            const auto pool = world.pools_.find({id, to});
            return pool == world.pools_.end() ? nullptr : &*pool->second->producer;
        }
        [[nodiscard]] TensorConsumer* tensors_from(StageId from) override {
            const auto pool = world.pools_.find({from, id});
            return pool == world.pools_.end() ? nullptr : &*pool->second->consumer;
        }
        void fail(Error error) override {
            if (!world.failure) world.failure = std::move(error);
        }
        void stop() override {}

        ShuffledWorld& world;
        StageId id;
        Actor& actor;
        std::deque<control::Message> cold;
        std::deque<Job> jobs;
        std::vector<StageId> wants_room;
    };

    void push(StageId from, StageId to, std::uint16_t kind, std::span<const std::byte> bytes) {
        channels_[{from, to}].push_back({kind, {bytes.begin(), bytes.end()}});
    }

    bool step() {
        now += Micros{std::uniform_int_distribution<int>{0, 20}(random_)};
        std::vector<std::function<void()>> choices;
        for (auto& [edge, letters] : channels_) {
            if (!letters.empty())
                choices.push_back([this, key = edge] { deliver(key.first, key.second); });
        }
        for (auto& [id, stage] : stages_) {
            Stage* at = stage.get();
            if (!at->cold.empty()) choices.push_back([this, at] { deliver_cold(*at); });
            if (!at->jobs.empty()) choices.push_back([at] { end_job(*at); });
            if (!at->wants_room.empty()) choices.push_back([this, at] { tell_room(*at); });
        }
        for (auto& [edge, pool] : pools_) {
            if (pool->producer->has_room() && pool->producer->take_starved()) {
                stages_.at(edge.first)->wants_room.push_back(edge.second);
            }
        }
        const bool timer_due = !timers_.empty() && timers_.begin()->first <= now;
        if (timer_due || (choices.empty() && !timers_.empty())) {
            choices.assign(1, [this] { fire(); });
        }
        if (choices.empty()) return std::exchange(idle_rounds_, idle_rounds_ + 1) < 2;
        idle_rounds_ = 0;
        choices[std::uniform_int_distribution<std::size_t>{0, choices.size() - 1}(random_)]();
        return true;
    }
    void deliver(StageId from, StageId to) {
        const Letter letter = std::move(channels_[{from, to}].front());
        channels_[{from, to}].pop_front();
        const auto stage = stages_.find(to);
        if (stage != stages_.end()) stage->second->actor.handle(from, letter.kind, letter.bytes);
    }
    void deliver_cold(Stage& stage) {
        const control::Message message = std::move(stage.cold.front());
        stage.cold.pop_front();
        stage.actor.on_control(StageId{0}, message);
    }
    static void end_job(Stage& stage) {
        const Job job = std::move(stage.jobs.front());
        stage.jobs.pop_front();
        job.done(job.work());
    }
    void tell_room(Stage& stage) {
        const std::vector<StageId> waiting = std::exchange(stage.wants_room, {});
        for (const StageId to : waiting) {
            if (channels_[{stage.id, to}].size() < channel_room) {
                stage.actor.on_room(to);
            } else {
                stage.wants_room.push_back(to);
            }
        }
    }
    void fire() {
        auto timer = timers_.extract(timers_.begin());
        now = std::max(now, timer.key());
        timer.mapped()();
    }

    std::mt19937_64 random_;
    std::map<StageId, std::unique_ptr<Stage>> stages_;
    std::map<std::pair<StageId, StageId>, std::deque<Letter>> channels_;
    std::map<std::pair<StageId, StageId>, std::unique_ptr<Pool>> pools_;
    std::multimap<Micros, std::function<void()>> timers_;
    int idle_rounds_ = 0;
};

}  // namespace paceline::testing

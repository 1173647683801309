// ScriptedContext: the world of one actor under test, in which nothing happens by itself. What it
// sends lies here until it is asked for; jobs and timers wait until the test lets them go.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/protocol/message_checks.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline::testing {

/// Both ends of a tensor pool in plain memory.
struct ScriptedPool {
    ScriptedPool(std::uint32_t slots, std::size_t slot_bytes)
        : lines(pool_bytes(slots, slot_bytes).value() / kLineBytes + 1),
          memory{formatted(slots, slot_bytes)},
          producer{TensorProducer::attach_memory(memory).value()},
          consumer{TensorConsumer::attach_memory(memory).value()} {}

    struct alignas(kLineBytes) Line {
        std::byte bytes[kLineBytes];
    };
    std::span<std::byte> formatted(std::uint32_t slots, std::size_t slot_bytes) {
        const std::size_t bytes = pool_bytes(slots, slot_bytes).value();
        const std::span<std::byte> span{lines.front().bytes, bytes};
        format_pool(span, slots, slot_bytes);
        return span;
    }
    std::vector<Line> lines;
    std::span<std::byte> memory;
    TensorProducer producer;
    TensorConsumer consumer;
};

class ScriptedContext final : public StageContext {
public:
    explicit ScriptedContext(StageId self) : self_{self} {}

    [[nodiscard]] Micros now() const override { return time; }
    [[nodiscard]] Push send(StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override {
        if (full) {
            ++refused;
            return Push::Full;
        }
        sent_[to].push_back({kind, {bytes.begin(), bytes.end()}});
        return Push::Ok;
    }
    void schedule(Micros delay, std::function<void()> wake) override {
        timers_.emplace(time + delay, std::move(wake));
    }
    void submit(const JobLabel& label,
                std::function<JobOutcome()> work,
                std::function<void(JobOutcome)> done) override {
        labels.push_back(label);
        jobs_.emplace_back(std::move(work), std::move(done));
    }
    [[nodiscard]] std::uint64_t random() override { return ++random_; }
    void trace(TraceEvent /*event*/) override {}
    void count(Counter counter, std::uint64_t add) override { counted[counter] += add; }
    void set(Gauge gauge, std::uint64_t value) override { gauges[gauge] = value; }
    [[nodiscard]] StageId self() const override { return self_; }
    [[nodiscard]] Epoch epoch() const override { return Epoch{1}; }
    [[nodiscard]] Epoch epoch_of(StageId /*peer*/) const override { return Epoch{1}; }
    void report_fault(StageId peer, Error error) override {
        faults.emplace_back(peer, std::move(error));
    }
    void post(StageId /*to*/, const control::Message& message) override {
        posted.push_back(message);
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId /*to*/) override { return out; }
    [[nodiscard]] TensorConsumer* tensors_from(StageId /*from*/) override { return in; }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId /*request*/) override {
        return &word;
    }
    void cancel_before(RequestId /*request*/, Attempt /*valid*/) override {}
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId /*request*/) override {
        return nullptr;
    }
    void publish_watermark(RequestId /*request*/,
                           Attempt /*attempt*/,
                           Position /*position*/,
                           TokenId /*token*/) override {}
    void fail(Error error) override { failure = std::move(error); }
    void stop() override {}

    /// The oldest job; false if there is none.
    bool run_job() {
        if (jobs_.empty()) return false;
        const auto [work, done] = std::move(jobs_.front());
        jobs_.pop_front();
        ++jobs_run;
        done(work());
        return true;
    }
    /// The next timer; false if there is none.
    bool fire_timer() {
        if (timers_.empty()) return false;
        auto timer = timers_.extract(timers_.begin());
        time = std::max(time, timer.key());
        timer.mapped()();
        return true;
    }
    [[nodiscard]] bool idle() const { return jobs_.empty() && timers_.empty(); }
    /// What was sent to a stage since this was last asked, oldest first.
    template <class Deliver>
    void deliver_all(StageId to, const Deliver& deliver) {
        for (const QueuedMessage& sent : std::exchange(sent_[to], {})) {
            deliver(sent.kind, std::span<const std::byte>{sent.bytes});
        }
    }
    template <class M>
    [[nodiscard]] std::vector<M> take(StageId to) {
        std::vector<M> messages;
        deliver_all(to, [&](std::uint16_t kind, std::span<const std::byte> bytes) {
            if (kind != static_cast<std::uint16_t>(M::kKind)) return;
            messages.push_back(decode_message<M>(bytes).value());
        });
        return messages;
    }

    /// The oldest message to a stage, which must be an M.
    template <class M>
    [[nodiscard]] M expect(StageId to) {
        std::deque<QueuedMessage>& queue = sent_[to];
        REQUIRE_FALSE(queue.empty());
        REQUIRE(queue.front().kind == static_cast<std::uint16_t>(M::kKind));
        M message = decode_message<M>(queue.front().bytes).value();
        queue.pop_front();
        return message;
    }
    [[nodiscard]] std::size_t jobs_waiting() const { return jobs_.size(); }
    /// Messages that the test has not asked for, and jobs that it has not run.
    [[nodiscard]] std::size_t unexplained() const {
        std::size_t count = jobs_.size();
        for (const auto& [to, queue] : sent_) count += queue.size();
        return count;
    }

    bool full = false;
    std::uint64_t jobs_run = 0;
    Micros time{0};
    std::atomic<std::uint64_t> word{0};
    TensorProducer* out = nullptr;
    TensorConsumer* in = nullptr;
    std::optional<Error> failure;
    std::vector<std::pair<StageId, Error>> faults;  // of peers
    std::vector<control::Message> posted;
    std::vector<JobLabel> labels;
    std::map<Counter, std::uint64_t> counted;
    std::map<Gauge, std::uint64_t> gauges;
    std::size_t refused = 0;  // messages that found no room

private:
    struct QueuedMessage {
        std::uint16_t kind;
        std::vector<std::byte> bytes;
    };
    StageId self_;
    std::uint64_t random_ = 0;
    std::map<StageId, std::deque<QueuedMessage>> sent_;
    std::deque<std::pair<std::function<JobOutcome()>, std::function<void(JobOutcome)>>> jobs_;
    std::multimap<Micros, std::function<void()>> timers_;
};

}  // namespace paceline::testing

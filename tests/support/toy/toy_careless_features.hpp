// CarelessFeatures: the inbox in front of an EAGLE draft's actor. Of the notes with features some
// are lost, some come twice, and some after later messages, perhaps those of the next attempt.
//
// A note names a slot that its receiver releases, so a note that is late or comes twice is copied:
// its slot is released at once, and each copy is delivered from a pool of one slot of this inbox.
// That the actor releases this slot is checked, whatever it makes of the note.
// Owns the actor. Threads: its loop's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "actors/protocol/message_checks.hpp"
#include "ipc/base/check.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"
#include "tests/support/toy/toy_features.hpp"

namespace paceline::testing {

/// The environment of the actor; features may come from another pool.
class FeatureContext final : public StageContext {
public:
    explicit FeatureContext(StageContext& real) : real_{real} {}
    TensorConsumer* instead = nullptr;  // of the pool of each peer, while it is set

    [[nodiscard]] StageContext& real() const { return real_; }
    [[nodiscard]] TensorConsumer* tensors_from(StageId from) override {
        return instead != nullptr ? instead : real_.tensors_from(from);
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId to) override { return real_.tensors_to(to); }
    [[nodiscard]] StageId self() const override { return real_.self(); }
    [[nodiscard]] Epoch epoch() const override { return real_.epoch(); }
    [[nodiscard]] Epoch epoch_of(StageId peer) const override { return real_.epoch_of(peer); }
    void post(StageId to, const control::Message& message) override { real_.post(to, message); }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId request) override {
        return real_.cancel_word(request);
    }
    void cancel_before(RequestId request, Attempt valid) override {
        real_.cancel_before(request, valid);
    }
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId request) override {
        return real_.watermark_cell(request);
    }
    void publish_watermark(RequestId request,
                           Attempt attempt,
                           Position position,
                           TokenId token) override {
        real_.publish_watermark(request, attempt, position, token);
    }
    void excuse_loss(StageId stage) override { real_.excuse_loss(stage); }
    void report_fault(StageId peer, Error error) override {
        real_.report_fault(peer, std::move(error));
    }
    void fail(Error error) override { real_.fail(std::move(error)); }
    void stop() override { real_.stop(); }
    [[nodiscard]] Micros now() const override { return real_.now(); }
    [[nodiscard]] Push send(StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override {
        return real_.send(to, kind, bytes);
    }
    void schedule(Micros delay, std::function<void()> wake) override {
        real_.schedule(delay, std::move(wake));
    }
    void submit(const JobLabel& label,
                std::function<JobOutcome()> work,
                std::function<void(JobOutcome)> done) override {
        real_.submit(label, std::move(work), std::move(done));
    }
    [[nodiscard]] std::uint64_t random() override { return real_.random(); }
    void trace(TraceEvent event) override { real_.trace(event); }
    void count(Counter counter, std::uint64_t add) override { real_.count(counter, add); }
    void set(Gauge gauge, std::uint64_t value) override { real_.set(gauge, value); }

private:
    StageContext& real_;
};

class CarelessFeatures final : public Actor {
public:
    /// Counts what it does in `counts`.
    CarelessFeatures(std::unique_ptr<Actor> draft,
                     std::uint64_t seed,
                     std::shared_ptr<FeatureCounts> counts)
        : draft_{std::move(draft)}, random_{seed}, counts_{std::move(counts)} {}

    void on_start(StageContext& context) override { draft_->on_start(context_.emplace(context)); }
    void on_control(StageId from, const control::Message& message) override {
        draft_->on_control(from, message);
    }
    void on_room(StageId to) override { draft_->on_room(to); }
    void on_peer(StageId peer, PeerChange change) override {
        late_.reset();  // a lost sender's messages are gone
        draft_->on_peer(peer, change);
    }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        std::optional<Copy> copy;
        if (kind == static_cast<std::uint16_t>(msg::Kind::TensorNote)) copy = take(from, bytes);
        if (!copy) {
            draft_->handle(from, kind, bytes);
            if (!late_ || --late_after_ > 0) return;
            return deliver(*std::exchange(late_, {}));
        }
        const std::uint64_t fate = late_ ? random_() % 2 : random_() % 3;
        if (fate == 0) {
            ++counts_->lost;
        } else if (fate == 1) {
            ++counts_->doubled;
            deliver(*copy);
            deliver(*copy);
        } else {
            ++counts_->late;
            late_after_ = 1 + static_cast<int>(random_() % 4);
            late_ = std::move(copy);
        }
    }

private:
    struct Copy {
        StageId from;
        msg::TensorNote note;
        std::vector<std::byte> tensor;
    };

    /// Three of eight notes, whose slots are released; nothing: the note takes its way.
    std::optional<Copy> take(StageId from, std::span<const std::byte> bytes) {
        if (random_() % 8 >= 3) return std::nullopt;
        const msg::TensorNote note = decode_message<msg::TensorNote>(bytes).value();
        TensorConsumer* tensors = context_->real().tensors_from(from);
        if (tensors == nullptr) return std::nullopt;
        const PoolRef slot{note.tensor, note.tensor_generation};
        const std::span<const std::byte> tensor =
            tensors->view(slot, msg::tensor_bytes(note).value()).value();
        Copy copy{from, note, {tensor.begin(), tensor.end()}};
        tensors->release(slot);
        return copy;
    }

    void deliver(const Copy& copy) {
        const std::size_t bytes = pool_bytes(1, copy.tensor.size()).value();
        std::vector<Line> memory(bytes / sizeof(Line) + 1);
        const std::span<std::byte> pool{memory.front().bytes, bytes};
        format_pool(pool, 1, copy.tensor.size());
        TensorProducer producer = TensorProducer::attach_memory(pool).value();
        TensorConsumer consumer = TensorConsumer::attach_memory(pool).value();
        const PoolRef slot = producer.acquire().value();
        std::copy(copy.tensor.begin(), copy.tensor.end(), producer.bytes(slot).begin());
        producer.publish(slot, copy.tensor.size());
        msg::TensorNote note = copy.note;
        note.tensor = slot.index;
        note.tensor_generation = slot.generation;
        const Instead here{*context_, consumer};
        draft_->handle(copy.from, static_cast<std::uint16_t>(msg::Kind::TensorNote),
                       std::as_bytes(std::span{&note, 1}));
        PACE_CHECK(producer.has_room(), "a note with features was handled, its slot is not free");
    }

    /// Also where the handler throws, as it does when memory runs out.
    struct Instead {
        Instead(FeatureContext& context, TensorConsumer& consumer) : of{context} {
            of.instead = &consumer;
        }
        Instead(const Instead&) = delete;
        Instead& operator=(const Instead&) = delete;
        ~Instead() { of.instead = nullptr; }
        FeatureContext& of;
    };
    struct alignas(kLineBytes) Line {
        std::byte bytes[kLineBytes];
    };

    std::unique_ptr<Actor> draft_;
    std::mt19937_64 random_;
    std::shared_ptr<FeatureCounts> counts_;
    std::optional<FeatureContext> context_;
    std::optional<Copy> late_;
    int late_after_ = 0;  // messages that are handled before it
};

}  // namespace paceline::testing

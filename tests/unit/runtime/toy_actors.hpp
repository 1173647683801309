// Actors that know nothing of models: they count, double and pass on, through the same contexts
// that the real ones use.
#pragma once

#include <atomic>
#include <cstring>
#include <vector>

#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline::test {

template <class M>
Push send(StageContext& context, StageId to, const M& message) {
    return context.send(to, static_cast<std::uint16_t>(M::kKind),
                        std::as_bytes(std::span{&message, 1}));
}

template <class M>
M as(std::span<const std::byte> bytes) {
    M message;
    std::memcpy(&message, bytes.data(), sizeof message);
    return message;
}

/// Answers each number with its successor, after a job; a Batch's tensor is read and released.
class Relay : public Actor {
public:
    explicit Relay(StageId to) : to_{to} {}

    void on_start(StageContext& context) override { context_ = &context; }
    void on_control([[maybe_unused]] StageId from, const control::Message& message) override {
        if (std::holds_alternative<control::Begin>(message)) ++begins;
    }
    void handle(StageId from,
                [[maybe_unused]] std::uint16_t kind,
                std::span<const std::byte> bytes) override {
        auto proposal = as<msg::Proposal>(bytes);
        if (TensorConsumer* pool = context_->tensors_from(from)) add_tensor(*pool, proposal);
        context_->submit(
            {.rows = 1},
            [this] {
                ++jobs;
                return JobOutcome::Done;
            },
            [this, proposal](JobOutcome) {
                waiting_.push_back(proposal);
                forward();
            });
    }
    void on_room([[maybe_unused]] StageId to) override {
        ++rooms;
        forward();
    }
    void on_peer(StageId peer, PeerChange change) override {
        (change == PeerChange::Lost ? lost : joined).push_back(peer);
        forward();
    }

    std::vector<StageId> lost;
    std::vector<StageId> joined;
    int begins = 0;
    int jobs = 0;
    int rooms = 0;
    std::atomic<int> sent{0};  // for a test on another thread to wait for

private:
    /// The number in the tensor is added to the message's.
    void add_tensor(TensorConsumer& pool, msg::Proposal& proposal) {
        const PoolRef slot{proposal.count, static_cast<std::uint32_t>(proposal.root_token)};
        const auto view = pool.view(slot, sizeof(std::int32_t));
        if (!view.ok()) return context_->fail(view.error());
        std::int32_t number = 0;
        std::memcpy(&number, view.value().data(), sizeof number);
        proposal.root_position += number;
        pool.release(slot);
    }
    void forward() {
        while (!waiting_.empty()) {
            msg::Proposal next = waiting_.front();
            next.root_position += 1;
            if (TensorProducer* pool = context_->tensors_to(to_)) {
                const auto slot = pool->acquire();
                if (!slot) break;  // on_room follows
                const std::int32_t thousand = 1000;
                std::memcpy(pool->bytes(*slot).data(), &thousand, sizeof thousand);
                pool->publish(*slot, sizeof thousand);
                next.count = slot->index;
                next.root_token = static_cast<TokenId>(slot->generation);
                ready_.push_back(next);
            } else {
                ready_.push_back(next);
            }
            waiting_.erase(waiting_.begin());
        }
        while (!ready_.empty() && send(*context_, to_, ready_.front()) == Push::Ok) {
            ready_.erase(ready_.begin());
            ++sent;
        }
    }

    StageId to_;
    StageContext* context_ = nullptr;
    std::vector<msg::Proposal> waiting_;  // not yet given a tensor
    std::vector<msg::Proposal> ready_;    // not yet sent
};

/// Sends the numbers 0 .. count-1, as fast as the channel takes them, and collects the answers.
class Source : public Actor {
public:
    Source(StageId to, int count) : to_{to}, count_{count} {}

    void on_start(StageContext& context) override {
        context_ = &context;
        push_on();
    }
    void handle([[maybe_unused]] StageId from,
                [[maybe_unused]] std::uint16_t kind,
                std::span<const std::byte> bytes) override {
        answers.push_back(as<msg::Proposal>(bytes).root_position);
        if (static_cast<int>(answers.size()) == count_) context_->stop();
    }
    void on_room([[maybe_unused]] StageId to) override {
        ++rooms;
        push_on();
    }

    void on_peer(StageId peer, PeerChange change) override {
        (change == PeerChange::Lost ? lost : joined).push_back(peer);
    }

    std::vector<Position> answers;
    std::vector<StageId> lost;
    std::vector<StageId> joined;
    int rooms = 0;

protected:
    void push_on() {
        for (; next_ < count_; ++next_) {
            msg::Proposal proposal{};
            proposal.root_position = next_;
            if (send(*context_, to_, proposal) == Push::Full) return;
        }
    }
    StageContext* context_ = nullptr;

private:
    StageId to_;
    int count_;
    int next_ = 0;
};

}  // namespace paceline::test

#include "tests/sim/ring_litmus_node.hpp"

#include <array>
#include <cstring>
#include <utility>

namespace paceline::test {
namespace {

using namespace std::chrono_literals;

/// Places between two calls; those inside of them are fault points, numbered from 0.
enum Place : std::uint32_t { kBetween = 100, kLooked, kHalfRead, kHalfFilled, kTook };

}  // namespace

Node::Node(std::uint32_t end, std::uint64_t seed, Surroundings around)
    : random_{seed ^ (0x5bd1e995ULL * (end + 1))},
      around_{std::move(around)},
      to_send_{around_.scenario.messages[end]},
      to_take_{around_.scenario.messages[1 - end]},
      in_{around_.in.consumer()} {
    if (around_.scenario.haunted[end]) out_ = around_.out.old_producer();
    if (around_.scenario.pool_slots == 0) return;
    tensors_in_ = TensorConsumer::attach_memory(around_.in.pool_memory()).value();
    tensors_out_ = TensorProducer::attach_memory(around_.out.pool_memory()).value();
}

void Node::run() {
    if (out_) haunt();
    first_published_ = around_.out.published();
    attach_producer();
    if (around_.scenario.producer_dies && to_send_ > 0) around_.die_in(1 + random_.below(40));
    try {
        live();
    } catch (const Killed&) {
        // The next incarnation goes on with what this one did not publish.
        own_sent_ = static_cast<std::uint32_t>(around_.out.published() - first_published_);
        around_.out.forget_after(own_sent_);
        attach_producer();
        has_news_ = true;
        live();
    }
    around_.die_in(0);
}

/// The end of a former incarnation: it goes on sending until it dies in the middle of something.
void Node::haunt() {
    around_.die_in(1 + random_.below(12));
    try {
        for (std::uint32_t index = 0; index < 4; ++index) {
            const Message message{
                around_.out.number(), kOldEpoch.value, index, Sort::Chatter, {}, 0};
            (void)out_->try_push(kNormalMessage, write_message(message));
            turn(kBetween);
        }
    } catch (const Killed&) {
        turn(kBetween);
    }
    around_.die_in(0);
    has_news_ = true;  // it may have died before it rang: its successor does
}

void Node::attach_producer() {
    out_ = around_.out.producer();
    wants_room_.reset();
    has_unpublished_ = false;
}

void Node::live() {
    while (!is_over()) {
        bool any = take_messages();
        any = release_some(false) || any;
        any = send_messages() || any;
        if (any || is_over()) continue;
        if (release_some(true)) continue;  // no sleep on slots that the peer may wait for
        sleep();
    }
    (void)release_some(true);
    ring_peer();
}

bool Node::is_over() const {
    return own_sent_ == to_send_ && own_taken_ == to_take_ && questions_ == 0 && owed_ == 0;
}

bool Node::has_reason() {
    return in_.has_frame() || (wants_room_ && out_->has_room(*wants_room_)) ||
           (wants_slot_ && tensors_out_->has_room());
}

void Node::sleep() {
    ring_peer();
    turn(kBetween);
    if (wants_room_) out_->want_room();
    if (wants_slot_) tensors_out_->want_room();
    turn(kBetween);
    const auto ready = [this] {
        const bool reason = has_reason();
        turn(kLooked);  // what comes now was not seen
        return reason;
    };
    (void)around_.own.wait(ready, 0us, 100ms);
    wants_room_.reset();
    wants_slot_ = false;
}

void Node::ring_peer() {
    if (!std::exchange(has_news_, false)) return;
    turn(kBetween);
    around_.peer.ring();
}

// ---- receiving ----

bool Node::take_messages() {
    alignas(8) std::array<std::byte, kMessageBytesMax> buffer{};
    bool any = false;
    for (std::uint32_t burst = 1 + random_.below(4); burst > 0; --burst) {
        const Popped popped = in_.try_pop(buffer);
        if (popped.outcome == Pop::Corrupt) around_.fail(in_.fault().error().what);
        if (popped.outcome == Pop::Empty) break;
        any = true;
        take(popped.payload, popped.kind);
        turn(kTook);
        if (owed_ > 0) send_answer();
    }
    // Also when only frames of an old epoch were dropped.
    if (in_.take_room_wanted()) has_news_ = true;
    ring_peer();
    return any;
}

void Node::take(std::span<const std::byte> frame, std::uint16_t kind) {
    const std::string complaint =
        complaint_about(frame, kind, around_.in.number(), around_.in.taken());
    if (!complaint.empty()) around_.fail(complaint);
    around_.in.count_taken();
    Message message{};
    std::memcpy(&message, frame.data(), sizeof message);
    around_.fibers.note((std::uint64_t{message.index} << 32U) | message.channel);
    if (message.sort == Sort::Answer) {
        --questions_;
    } else {
        ++own_taken_;
    }
    if (message.sort == Sort::Question) ++owed_;
    if (message.tensor.generation != 0) hold(message);
}

void Node::hold(const Message& message) {
    const Held held{message.tensor, message.index, message.tensor_bytes};
    look_at(held);
    held_.push_back(held);
}

void Node::look_at(const Held& held) {
    const Result<std::span<const std::byte>> view = tensors_in_->view(held.slot, held.bytes);
    if (!view.ok()) around_.fail("a tensor that was announced cannot be read");
    for (std::size_t at = 0; at < held.bytes; ++at) {
        if (at == held.bytes / 2) turn(kHalfRead);
        if (view.value()[at] != tensor_byte(around_.in.number(), held.index, at)) {
            around_.fail("a tensor that was read is not the one announced");
        }
    }
}

bool Node::release_some(bool all) {
    bool any = false;
    while (!held_.empty() && (all || random_.one_in(3))) {
        const std::uint32_t which = random_.below(static_cast<std::uint32_t>(held_.size()));
        const Held held = held_[which];
        held_.erase(held_.begin() + which);
        look_at(held);  // it was not changed while it was held
        tensors_in_->release(held.slot);
        released_.push_back(held.slot);
        any = true;
        turn(kBetween);
    }
    if (!released_.empty() && random_.one_in(2)) try_old_reference();
    if (any && tensors_in_->take_room_wanted()) has_news_ = true;
    ring_peer();
    return any;
}

/// A reference that was given back, as a message of an earlier life would carry it.
void Node::try_old_reference() {
    const PoolRef old = released_[random_.below(static_cast<std::uint32_t>(released_.size()))];
    if (tensors_in_->view(old, 1).ok()) around_.fail("a tensor was read that was given back");
    tensors_in_->release(old);
}

// ---- sending ----

bool Node::send_messages() {
    bool any = false;
    for (std::uint32_t batch = 1 + random_.below(4); batch > 0 && own_sent_ < to_send_; --batch) {
        if (!send_own(next_sort())) break;
        any = true;
        if (random_.one_in(2)) publish();
    }
    publish();
    ring_peer();
    return any;
}

Sort Node::next_sort() {
    if (around_.scenario.both_ways) {
        return questions_ < around_.scenario.urgent_slots ? Sort::Question : Sort::Chatter;
    }
    // By its number, so that the next incarnation sends the same.
    return own_sent_ % 4 == 1 ? Sort::Shout : Sort::Chatter;
}

bool Node::send_own(Sort sort) {
    const Urgency urgency = urgency_of(sort);
    if (!out_->has_room(urgency)) {
        if (!out_->fault().ok()) around_.fail(out_->fault().error().what);
        wants_room_ = urgency;
        if (urgency == Urgency::Urgent &&
            around_.out.urgent_on_the_way() < around_.scenario.urgent_slots) {
            around_.fail("an urgent message meets a ring full of normal ones");
        }
        return false;
    }
    Message message{around_.out.number(), kEpoch.value, around_.out.put(), sort, {}, 0};
    if (tensors_out_ && urgency == Urgency::Normal && message.index % 3 != 0) {
        const std::optional<PoolRef> slot = fill_tensor(message.index);
        if (!slot) return false;
        message.tensor = *slot;
        message.tensor_bytes = tensor_bytes_of(message.index);
    }
    if (!put(message)) around_.fail("a ring with room says that it is full");
    ++own_sent_;
    if (sort == Sort::Question) ++questions_;
    return true;
}

void Node::send_answer() {
    const Message message{around_.out.number(), kEpoch.value, around_.out.put(),
                          Sort::Answer,         {},           0};
    // There are never more questions on the way than reserved slots: there must be room.
    if (!put(message)) around_.fail("an answer meets a full ring");
    --owed_;
    publish();
}

std::optional<PoolRef> Node::fill_tensor(std::uint32_t index) {
    const std::optional<PoolRef> slot = tensors_out_->acquire();
    if (!slot) {
        if (!tensors_out_->fault().ok()) around_.fail(tensors_out_->fault().error().what);
        wants_slot_ = true;
        return std::nullopt;
    }
    const std::span<std::byte> bytes = tensors_out_->bytes(*slot);
    const std::uint32_t count = tensor_bytes_of(index);
    for (std::size_t at = 0; at < count; ++at) {
        if (at == count / 2) turn(kHalfFilled);
        bytes[at] = tensor_byte(around_.out.number(), index, at);
    }
    tensors_out_->publish(*slot, count);
    return slot;
}

bool Node::put(Message message) {
    const std::vector<std::byte> frame = write_message(message);
    // Counted before: with some bugs it can be taken while it is being put.
    around_.out.count_put(message.sort);
    has_unpublished_ = true;
    return out_->try_put(kind_of(message.sort), frame) == Push::Ok;
}

void Node::publish() {
    if (!std::exchange(has_unpublished_, false)) return;
    out_->publish();
    has_news_ = true;
    turn(kBetween);
}

}  // namespace paceline::test

#include "runtime/cluster/relay_edge.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <utility>

#include "ipc/wire/announced_tensor.hpp"
#include "ipc/wire/data_kinds.hpp"

namespace paceline {
namespace {

constexpr std::span<const KindRule> kRules{kDataKinds};
WindowSize size_of(const RingView& ring) {
    return {ring.slot_count, ring.urgent_slots};
}

Error elsewhere(std::uint32_t edge) {
    return {Errc::Unsupported,
            fmt::format("edge {}: its tensors lie on a device; between machines they travel "
                        "through the host's memory",
                        edge)};
}

}  // namespace

// ---- out of a local ring ----

RelayOut::RelayOut(std::uint32_t edge, RingConsumer ring, WindowSize size, Doorbell bell)
    : edge_{edge},
      ring_{std::move(ring)},
      bell_{std::move(bell)},
      window_{size},
      buffer_(ring_.payload_bytes()) {}

Result<RelayOut> RelayOut::attach(std::uint32_t edge, Epoch epoch, ChannelMemory memory) {
    const Result<RingView> view = RingView::of(memory.ring.bytes(), epoch);
    if (!view.ok()) return view.error();
    Result<RingConsumer> ring = RingConsumer::attach(std::move(memory.ring), epoch, kRules);
    if (!ring.ok()) return ring.error();
    RelayOut out{edge, std::move(ring).value(), size_of(view.value()), std::move(memory.bell)};
    if (!memory.pool) return out;
    Result<TensorConsumer> pool = TensorConsumer::attach(std::move(*memory.pool));
    if (!pool.ok()) return pool.error();
    if (pool.value().is_elsewhere()) return elsewhere(edge);
    out.sent_.resize(pool.value().slot_count());
    out.pool_ = std::move(pool).value();
    return out;
}

Status RelayOut::fill() {
    // What is in the ring waits there, where its producer sees that it is full.
    if (held_ || !window_.has_room(Urgency::Urgent)) return {};
    const Popped popped = ring_.try_pop(buffer_);
    // Also when all that was taken were frames of an old epoch.
    if (ring_.take_room_wanted()) bell_.ring();
    if (popped.outcome == Pop::Corrupt) return ring_.fault();
    if (popped.outcome == Pop::Frame) hold(popped);
    return {};
}

bool RelayOut::flush(FramePort& port) {
    if (!held_ || !send_held(port)) return false;
    held_.reset();
    return true;
}

void RelayOut::hold(const Popped& popped) {
    held_ = Held{.kind = popped.kind,
                 .bytes = popped.payload.size(),
                 .urgency = find_rule(kRules, popped.kind)->urgency};
    const std::optional<PoolRef> slot = msg::announced_tensor(popped.kind, popped.payload);
    if (!slot || !pool_ || slot->index >= sent_.size()) return;
    if (std::exchange(sent_[slot->index], slot->generation) == slot->generation) return;
    held_->tensor = slot;
    // A name of what is not published is the consumer's to judge: nothing follows it.
    const Result<std::size_t> bytes = pool_->used_bytes(*slot);
    if (!bytes.ok()) return;
    const Result<std::span<const std::byte>> data = pool_->view(*slot, bytes.value());
    if (data.ok()) held_->data = data.value();
}

/// Whether all of it is on its way.
bool RelayOut::send_held(FramePort& port) {
    if (!held_->sent) {
        if (!window_.has_room(held_->urgency)) return false;
        const bool urgent = held_->urgency == Urgency::Urgent;
        const remote::EdgeFrame frame{edge_, held_->kind, urgent,
                                      std::span{buffer_}.first(held_->bytes)};
        if (port.send(frame, remote::Lane::Data, urgent) != remote::Sent::Queued) return false;
        window_.note_sent();
        held_->sent = true;
    }
    return !held_->tensor || send_tensor(port);
}

bool RelayOut::send_tensor(FramePort& port) {
    Held& held = *held_;
    do {
        const std::size_t bytes =
            std::min<std::size_t>(held.data.size() - held.offset, remote::kPartBytesMax);
        const remote::TensorPart part{edge_,
                                      held.tensor->index,
                                      held.tensor->generation,
                                      held.data.size(),
                                      held.offset,
                                      held.data.subspan(held.offset, bytes)};
        if (port.send(part, remote::Lane::Data, false) != remote::Sent::Queued) return false;
        held.offset += bytes;
    } while (held.offset < held.data.size());
    return true;
}

void RelayOut::on_free(PoolRef slot) {
    if (!pool_) return;
    pool_->release(slot);  // one of an earlier life changes nothing
    if (pool_->take_room_wanted()) bell_.ring();
}

// ---- into a local ring ----

RelayIn::RelayIn(std::uint32_t edge, RingProducer ring, WindowSize size, Doorbell bell)
    : edge_{edge}, ring_{std::move(ring)}, bell_{std::move(bell)}, window_{size} {}

Result<RelayIn> RelayIn::attach(std::uint32_t edge, Epoch epoch, ChannelMemory memory) {
    const Result<RingView> view = RingView::of(memory.ring.bytes(), epoch);
    if (!view.ok()) return view.error();
    Result<RingProducer> ring = RingProducer::attach(std::move(memory.ring), epoch, kRules);
    if (!ring.ok()) return ring.error();
    RelayIn in{edge, std::move(ring).value(), size_of(view.value()), std::move(memory.bell)};
    in.payload_bytes_ = view.value().payload_bytes;
    if (!memory.pool) return in;
    in.pool_memory_ = std::move(*memory.pool);
    Result<PoolView> pool = PoolView::of(in.pool_memory_.bytes());
    if (!pool.ok()) return pool.error();
    if (pool.value().data == nullptr) return elsewhere(edge);
    in.pool_ = pool.value();
    in.slots_.resize(pool.value().slot_count);
    // Stays: every release is to be told of at once.
    in.pool_->header->room_wanted.exchange(1, std::memory_order_acq_rel);
    return in;
}

Status RelayIn::on_frame(std::uint16_t kind, std::span<const std::byte> payload) {
    const KindRule* rule = find_rule(kRules, kind);
    if (rule == nullptr || payload.size() > payload_bytes_ || !allows(*rule, payload)) {
        return Error{Errc::Protocol, fmt::format("edge {}: a frame of kind {} and {} bytes", edge_,
                                                 kind, payload.size())};
    }
    if (const Status fits = window_.note_received(); !fits.ok()) return fits;
    Waiting waiting{kind, {payload.begin(), payload.end()}, {}};
    const std::optional<PoolRef> slot = msg::announced_tensor(kind, payload);
    if (slot && pool_ && slot->index < slots_.size() &&
        slots_[slot->index].wanted != slot->generation) {
        slots_[slot->index].wanted = slot->generation;
        slots_[slot->index].received = 0;
        waiting.tensor = slot;
    }
    queue_.push_back(std::move(waiting));
    return {};
}

Status RelayIn::on_part(const remote::TensorPart& part) {
    const auto wrong = [&](const char* what) {
        return Error{Errc::Protocol,
                     fmt::format("edge {}: a part of tensor slot {} of generation {} {}", edge_,
                                 part.slot, part.generation, what)};
    };
    if (!pool_ || part.slot >= slots_.size()) return wrong("that the pool does not have");
    Slot& slot = slots_[part.slot];
    if (part.generation != slot.wanted || slot.complete == slot.wanted)
        return wrong("that was not announced");
    if (part.total > pool_->slot_bytes || part.offset != slot.received ||
        part.bytes.size() > part.total - part.offset)
        return wrong("beyond its place");
    PoolSlotState& state = pool_->states[part.slot];
    // Acquire pairs with the consumer's release in release(): its last read came before.
    const bool is_free =
        state.generation.load(std::memory_order_acquire) == part.generation - 1 && !slot.lent;
    if (part.total != 0 && !is_free) {
        // Only a consumer that broke its pool, or a sender that reuses what is not free. The first
        // is found by pump(); the frame goes on without its tensor.
        broken_ = true;
    } else if (!part.bytes.empty()) {
        std::memcpy(pool_->data + part.slot * pool_->slot_stride + part.offset, part.bytes.data(),
                    part.bytes.size());
    }
    slot.received += part.bytes.size();
    if (slot.received < part.total) return {};
    return finish({part.slot, part.generation}, part.total);
}

Status RelayIn::finish(PoolRef slot, std::uint64_t bytes) {
    slots_[slot.index].complete = slot.generation;
    if (bytes == 0 || broken_) return {};
    PoolSlotState& state = pool_->states[slot.index];
    state.used_bytes = bytes;
    // Release pairs with the consumer's acquire: it sees the filled slot.
    state.generation.store(slot.generation, std::memory_order_release);
    slots_[slot.index].lent = true;
    return {};
}

Status RelayIn::pump(FramePort& port) {
    bool any = false;
    while (!queue_.empty()) {
        const Waiting& first = queue_.front();
        if (first.tensor && !is_complete(*first.tensor)) break;
        if (ring_.try_push(first.kind, first.payload) == Push::Full) {
            ring_.want_room();
            // Room that was made just before would otherwise be slept over.
            if (ring_.try_push(first.kind, first.payload) == Push::Full) break;
        }
        window_.note_put();
        queue_.pop_front();
        any = true;
    }
    if (any) bell_.ring();
    if (const auto total = window_.news()) {
        const remote::EdgeRoom room{edge_, *total};
        if (port.send(room, remote::Lane::Control, true) == remote::Sent::Queued)
            window_.told(*total);
    }
    tell_free(port);
    if (!broken_) return ring_.fault();
    return Error{Errc::Protocol,
                 "the consumer of a tensor pool changed a slot that was not its own"};
}

void RelayIn::tell_free(FramePort& port) {
    for (std::uint32_t index = 0; index < slots_.size(); ++index) {
        Slot& slot = slots_[index];
        if (!slot.lent) continue;
        // Acquire as in on_part().
        const std::uint32_t generation =
            pool_->states[index].generation.load(std::memory_order_acquire);
        if (generation == slot.complete) continue;
        if (generation != slot.complete + 1) {
            broken_ = true;
            continue;
        }
        const remote::TensorFree free{edge_, index, slot.complete};
        if (port.send(free, remote::Lane::Control, true) != remote::Sent::Queued) return;
        slot.lent = false;
    }
}

}  // namespace paceline

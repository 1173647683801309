#include "ipc/transport/tensor_pool.hpp"

#include <cstring>
#include <fmt/core.h>
#include <new>

#include "ipc/base/check.hpp"
#include "ipc/base/checked.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

constexpr std::size_t stride_of(std::size_t slot_bytes) {
    return (slot_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

constexpr bool is_published(std::uint32_t generation) {
    return (generation & 1U) != 0;
}

Error bad_reference(PoolRef slot, const std::string& why) {
    return {Errc::Protocol,
            fmt::format("tensor slot {} of generation {} {}", slot.index, slot.generation, why)};
}

}  // namespace

Result<std::size_t> pool_bytes(std::uint32_t slots, std::size_t slot_bytes) {
    if (slots == 0 || slots > kPoolSlotsMax) {
        return Error{Errc::BadArgument,
                     fmt::format("a tensor pool has 1 to {} slots, not {}", kPoolSlotsMax, slots)};
    }
    if (slot_bytes == 0 || slot_bytes > kPoolSlotBytesMax) {
        return Error{Errc::BadArgument, fmt::format("a tensor slot has 1 to {} bytes, not {}",
                                                    kPoolSlotBytesMax, slot_bytes)};
    }
    // At most 2^10 slots of 2^30 bytes: no product here can wrap.
    return sizeof(PoolHeader) + slots * (sizeof(PoolSlotState) + stride_of(slot_bytes));
}

Result<ShmFile> create_pool(const std::string& name, std::uint32_t slots, std::size_t slot_bytes) {
    const Result<std::size_t> bytes = pool_bytes(slots, slot_bytes);
    if (!bytes.ok()) return bytes.error();
    PoolHeader header{};
    header.magic = kPoolMagic;
    header.layout_version = kPoolLayoutVersion;
    header.slot_count = slots;
    header.slot_bytes = slot_bytes;
    return ShmFile::create(name, bytes.value(), std::as_bytes(std::span{&header, 1}));
}

void format_pool(std::span<std::byte> memory, std::uint32_t slots, std::size_t slot_bytes) {
    const Result<std::size_t> bytes = pool_bytes(slots, slot_bytes);
    PACE_CHECK(bytes.ok() && memory.size() == bytes.value(), "memory of the wrong size for a pool");
    std::memset(memory.data(), 0, sizeof(PoolHeader) + slots * sizeof(PoolSlotState));
    auto* header = new (memory.data()) PoolHeader{};
    header->magic = kPoolMagic;
    header->layout_version = kPoolLayoutVersion;
    header->slot_count = slots;
    header->slot_bytes = slot_bytes;
}

Result<PoolView> PoolView::of(std::span<std::byte> memory) {
    if (memory.size() < sizeof(PoolHeader)) {
        return Error{Errc::Protocol, fmt::format("a tensor pool has only {} bytes", memory.size())};
    }
    auto* header = std::launder(reinterpret_cast<PoolHeader*>(memory.data()));
    // Each constant is read once; from here on only the copies are used.
    const std::uint64_t magic = header->magic;
    const std::uint32_t version = header->layout_version;
    const std::uint32_t slots = header->slot_count;
    const std::uint64_t slot_bytes = header->slot_bytes;
    if (magic != kPoolMagic || version != kPoolLayoutVersion) {
        return Error{Errc::Protocol,
                     "a tensor pool's header has the wrong magic number or version"};
    }
    const Result<std::size_t> bytes = pool_bytes(slots, slot_bytes);
    if (!bytes.ok()) return Error{Errc::Protocol, bytes.error().what};
    if (bytes.value() > memory.size()) {
        return Error{Errc::Protocol, fmt::format("a tensor pool claims {} bytes and has {}",
                                                 bytes.value(), memory.size())};
    }
    PoolView view;
    view.header = header;
    view.states =
        std::launder(reinterpret_cast<PoolSlotState*>(memory.data() + sizeof(PoolHeader)));
    view.data = memory.data() + sizeof(PoolHeader) + slots * sizeof(PoolSlotState);
    view.slot_count = slots;
    view.slot_bytes = slot_bytes;
    view.slot_stride = stride_of(slot_bytes);
    return view;
}

// ---- producer ----

Result<TensorProducer> TensorProducer::attach(ShmRegion region) {
    Result<TensorProducer> pool = attach_memory(region.bytes());
    if (pool.ok()) pool.value().region_ = std::move(region);
    return pool;
}

Result<TensorProducer> TensorProducer::attach_memory(std::span<std::byte> memory) {
    const Result<PoolView> view = PoolView::of(memory);
    if (!view.ok()) return view.error();
    return TensorProducer{ShmRegion{}, view.value()};
}

std::optional<std::uint32_t> TensorProducer::find_free() {
    for (std::uint32_t i = 0; i < view_.slot_count && !corrupt_; ++i) {
        const std::uint32_t index = (cursor_ + i) % view_.slot_count;
        Slot& slot = slots_[index];
        if (slot.held) continue;
        // Acquire pairs with the consumer's release in release(): its last read of the slot
        // happened before we overwrite it.
        const std::uint32_t generation =
            view_.states[index].generation.load(std::memory_order_acquire);
        const bool was_released =
            is_published(slot.generation) && generation == slot.generation + 1;
        if (generation != slot.generation && !was_released) {
            corrupt_ = true;  // only a release may change a slot after our back
            break;
        }
        slot.generation = generation;
        if (planted(PlantedBug::PoolReleaseIgnored) && is_published(generation)) ++slot.generation;
        if (!is_published(slot.generation)) return index;
    }
    return std::nullopt;
}

std::optional<PoolRef> TensorProducer::acquire() {
    const std::optional<std::uint32_t> index = find_free();
    if (!index) {
        starved_ = true;
        return std::nullopt;
    }
    cursor_ = (*index + 1) % view_.slot_count;
    slots_[*index].held = true;
    // Relaxed: as in RingProducer::try_put().
    if (std::exchange(wished_, false)) {
        view_.header->room_wanted.store(0, std::memory_order_relaxed);
    }
    return PoolRef{*index, slots_[*index].generation + 1};
}

bool TensorProducer::holds(PoolRef slot) const {
    return slot.index < view_.slot_count && slots_[slot.index].held &&
           slots_[slot.index].generation + 1 == slot.generation;
}

std::span<std::byte> TensorProducer::bytes(PoolRef slot) {
    PACE_CHECK(holds(slot), "a tensor slot written that was not acquired");
    return view_.slot(slot.index);
}

TensorMemory TensorProducer::place(PoolRef slot) {
    const std::span<std::byte> memory = bytes(slot);
    return {.data = memory.data(), .bytes = memory.size(), .place = MemoryPlace::Host};
}

void TensorProducer::publish(PoolRef slot, std::size_t used_bytes) {
    PACE_CHECK(holds(slot), "a tensor slot published that was not acquired");
    PACE_CHECK(used_bytes <= view_.slot_bytes, "a tensor larger than its slot");
    fault_point(FaultPoint::TensorFilled);
    slots_[slot.index] = {slot.generation, false};
    view_.states[slot.index].used_bytes = used_bytes;
    // Release pairs with the consumer's acquire in is_published(): it sees the filled slot.
    view_.states[slot.index].generation.store(slot.generation, std::memory_order_release);
}

void TensorProducer::abandon(PoolRef slot) {
    PACE_CHECK(holds(slot), "a tensor slot abandoned that was not acquired");
    slots_[slot.index].held = false;
}

bool TensorProducer::has_room() {
    return find_free().has_value();
}

void TensorProducer::want_room() {
    // Pairs with the consumer's fetch_or in take_room_wanted(), as in RingProducer::want_room().
    wished_ = true;
    view_.header->room_wanted.exchange(1, std::memory_order_acq_rel);
}

Status TensorProducer::fault() const {
    if (!corrupt_) return {};
    return Error{Errc::Protocol,
                 "the consumer of a tensor pool changed a slot that was not its own"};
}

// ---- consumer ----

Result<TensorConsumer> TensorConsumer::attach(ShmRegion region) {
    Result<TensorConsumer> pool = attach_memory(region.bytes());
    if (pool.ok()) pool.value().region_ = std::move(region);
    return pool;
}

Result<TensorConsumer> TensorConsumer::attach_memory(std::span<std::byte> memory) {
    const Result<PoolView> view = PoolView::of(memory);
    if (!view.ok()) return view.error();
    return TensorConsumer{ShmRegion{}, view.value()};
}

bool TensorConsumer::is_published(PoolRef slot) const {
    // Acquire pairs with the producer's release in publish().
    return slot.index < view_.slot_count && (slot.generation & 1U) != 0 &&
           (view_.states[slot.index].generation.load(std::memory_order_acquire) ==
                slot.generation ||
            planted(PlantedBug::PoolGenerationIgnored));
}

Result<std::span<const std::byte>> TensorConsumer::view(PoolRef slot, std::size_t bytes) const {
    if (!is_published(slot)) return bad_reference(slot, "is not published");
    const std::uint64_t used = view_.states[slot.index].used_bytes;
    if (bytes > used || used > view_.slot_bytes) {
        return bad_reference(slot, fmt::format("holds {} bytes, {} were announced", used, bytes));
    }
    return std::span<const std::byte>{view_.slot(slot.index)}.first(bytes);
}

Result<TensorMemory> TensorConsumer::view_memory(PoolRef slot, std::size_t bytes) const {
    const Result<std::span<const std::byte>> viewed = view(slot, bytes);
    if (!viewed) return viewed.error();
    return TensorMemory{
        .data = view_.slot(slot.index).data(), .bytes = bytes, .place = MemoryPlace::Host};
}

void TensorConsumer::release(PoolRef slot) {
    if (!is_published(slot)) return;
    released_ = true;
    // Release pairs with the producer's acquire in find_free(): it overwrites the slot only
    // after our last read.
    view_.states[slot.index].generation.store(slot.generation + 1, std::memory_order_release);
}

bool TensorConsumer::take_room_wanted() {
    if (!std::exchange(released_, false)) return false;
    // See TensorProducer::want_room().
    if (planted(PlantedBug::RoomWishTaken)) {
        return view_.header->room_wanted.exchange(0, std::memory_order_acq_rel) != 0;
    }
    return view_.header->room_wanted.fetch_or(0, std::memory_order_acq_rel) != 0;
}

}  // namespace paceline

#include "ipc/transport/tensor_pool.hpp"

#include <cstring>
#include <fmt/core.h>
#include <new>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/transport/tensor_link.hpp"

namespace paceline {
namespace {

constexpr bool is_published(std::uint32_t generation) {
    return (generation & 1U) != 0;
}

/// `bytes` of a slot, wherever the slots of the pool are.
TensorMemory memory_of(const PoolView& view,
                       TensorLink* link,
                       std::byte* memory,
                       std::uint32_t index,
                       std::size_t bytes) {
    const std::size_t offset = index * view.slot_stride;
    if (view.data != nullptr) return {view.data + offset, bytes, MemoryPlace::Host};
    return {link != nullptr ? link->slot(index) : memory + offset, bytes, MemoryPlace::Device};
}

Error bad_reference(PoolRef slot, const std::string& why) {
    return {Errc::Protocol,
            fmt::format("tensor slot {} of generation {} {}", slot.index, slot.generation, why)};
}

}  // namespace

Result<std::size_t> pool_bytes(std::uint32_t slots, std::size_t slot_bytes, PoolData data) {
    if (slots == 0 || slots > kPoolSlotsMax) {
        return Error{Errc::BadArgument,
                     fmt::format("a tensor pool has 1 to {} slots, not {}", kPoolSlotsMax, slots)};
    }
    if (slot_bytes == 0 || slot_bytes > kPoolSlotBytesMax) {
        return Error{Errc::BadArgument, fmt::format("a tensor slot has 1 to {} bytes, not {}",
                                                    kPoolSlotBytesMax, slot_bytes)};
    }
    // At most 2^10 slots of 2^30 bytes: no product here can wrap.
    const std::size_t here = data == PoolData::Here ? pool_stride(slot_bytes) : 0;
    return sizeof(PoolHeader) + slots * (sizeof(PoolSlotState) + here);
}

namespace {

void fill_in(PoolHeader& header, std::uint32_t slots, std::size_t slot_bytes, PoolData data) {
    header.magic = kPoolMagic;
    header.layout_version = kPoolLayoutVersion;
    header.slot_count = slots;
    header.slot_bytes = slot_bytes;
    header.data = static_cast<std::uint32_t>(data);
}

}  // namespace

Result<ShmFile> create_pool(const std::string& name,
                            std::uint32_t slots,
                            std::size_t slot_bytes,
                            PoolData data) {
    const Result<std::size_t> bytes = pool_bytes(slots, slot_bytes, data);
    if (!bytes.ok()) return bytes.error();
    PoolHeader header{};
    fill_in(header, slots, slot_bytes, data);
    return ShmFile::create(name, bytes.value(), std::as_bytes(std::span{&header, 1}));
}

void format_pool(std::span<std::byte> memory,
                 std::uint32_t slots,
                 std::size_t slot_bytes,
                 PoolData data) {
    const Result<std::size_t> bytes = pool_bytes(slots, slot_bytes, data);
    PACE_CHECK(bytes.ok() && memory.size() == bytes.value(), "memory of the wrong size for a pool");
    std::memset(memory.data(), 0, sizeof(PoolHeader) + slots * sizeof(PoolSlotState));
    fill_in(*new (memory.data()) PoolHeader{}, slots, slot_bytes, data);
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
    const std::uint32_t data = header->data;
    if (magic != kPoolMagic || version != kPoolLayoutVersion) {
        return Error{Errc::Protocol,
                     "a tensor pool's header has the wrong magic number or version"};
    }
    if (data > static_cast<std::uint32_t>(PoolData::Elsewhere)) {
        return Error{Errc::Protocol,
                     fmt::format("a tensor pool says {} of where its slots are", data)};
    }
    const bool here = data == static_cast<std::uint32_t>(PoolData::Here);
    const Result<std::size_t> bytes = pool_bytes(slots, slot_bytes, static_cast<PoolData>(data));
    if (!bytes.ok()) return Error{Errc::Protocol, bytes.error().what};
    if (bytes.value() > memory.size()) {
        return Error{Errc::Protocol, fmt::format("a tensor pool claims {} bytes and has {}",
                                                 bytes.value(), memory.size())};
    }
    PoolView view;
    view.header = header;
    view.states =
        std::launder(reinterpret_cast<PoolSlotState*>(memory.data() + sizeof(PoolHeader)));
    if (here) view.data = memory.data() + sizeof(PoolHeader) + slots * sizeof(PoolSlotState);
    view.slot_count = slots;
    view.slot_bytes = slot_bytes;
    view.slot_stride = pool_stride(slot_bytes);
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

void TensorProducer::use_link(OutLink* link) {
    PACE_CHECK(is_elsewhere(), "a link for a pool that has its slots");
    link_ = link;
}

void TensorProducer::use_memory(std::byte* memory) {
    PACE_CHECK(is_elsewhere(), "memory for a pool that has its slots");
    memory_ = memory;
}

bool TensorProducer::has_memory() const {
    return !is_elsewhere() || link_ != nullptr || memory_ != nullptr;
}

std::optional<std::uint32_t> TensorProducer::find_free() {
    if (!has_memory() || closed_) return std::nullopt;
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
        if (is_published(slot.generation)) continue;
        if (link_ == nullptr || link_->reusable(index)) return index;
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
    if (std::exchange(requested_, false)) {
        view_.header->room_wanted.store(0, std::memory_order_relaxed);
    }
    return PoolRef{*index, slots_[*index].generation + 1};
}

bool TensorProducer::holds(PoolRef slot) const {
    return slot.index < view_.slot_count && slots_[slot.index].held &&
           slots_[slot.index].generation + 1 == slot.generation;
}

TensorMemory TensorProducer::place(PoolRef slot) {
    PACE_CHECK(holds(slot), "a tensor slot written that was not acquired");
    return memory_of(view_, link_, memory_, slot.index, view_.slot_bytes);
}

std::span<std::byte> TensorProducer::bytes(PoolRef slot) {
    const TensorMemory memory = place(slot);
    PACE_CHECK(memory.place == MemoryPlace::Host, "the host writes a tensor slot of a device");
    return {memory.data, memory.bytes};
}

void TensorProducer::publish(PoolRef slot, std::size_t used_bytes) {
    PACE_CHECK(holds(slot), "a tensor slot published that was not acquired");
    PACE_CHECK(used_bytes <= view_.slot_bytes, "a tensor larger than its slot");
    fault_point(FaultPoint::TensorFilled);
    slots_[slot.index] = {slot.generation, false, false, used_bytes};
    view_.states[slot.index].used_bytes = used_bytes;
    // Release pairs with the consumer's acquire in is_published(): it sees the filled slot.
    view_.states[slot.index].generation.store(slot.generation, std::memory_order_release);
}

void TensorProducer::announce(PoolRef slot) {
    if (link_ == nullptr || closed_ || slot.index >= view_.slot_count) return;
    Slot& known = slots_[slot.index];
    if (known.generation != slot.generation || std::exchange(known.announced, true)) return;
    link_->send(slot.index, known.used_bytes);
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
    requested_ = true;
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

void TensorConsumer::use_link(InLink* link) {
    PACE_CHECK(is_elsewhere(), "a link for a pool that has its slots");
    link_ = link;
}

void TensorConsumer::use_memory(std::byte* memory) {
    PACE_CHECK(is_elsewhere(), "memory for a pool that has its slots");
    memory_ = memory;
}

bool TensorConsumer::has_memory() const {
    return !is_elsewhere() || link_ != nullptr || memory_ != nullptr;
}

Result<std::size_t> TensorConsumer::used_bytes(PoolRef slot) const {
    if (!is_published(slot)) return bad_reference(slot, "is not published");
    if (!has_memory()) return bad_reference(slot, "is named before its link is open");
    const std::uint64_t used = view_.states[slot.index].used_bytes;
    if (used <= view_.slot_bytes) return static_cast<std::size_t>(used);
    return bad_reference(slot, fmt::format("holds {} bytes, it has {}", used, view_.slot_bytes));
}

Result<TensorMemory> TensorConsumer::view_memory(PoolRef slot, std::size_t bytes) const {
    const Result<std::size_t> used = used_bytes(slot);
    if (!used.ok()) return used.error();
    if (bytes > used.value()) {
        return bad_reference(slot,
                             fmt::format("holds {} bytes, {} were announced", used.value(), bytes));
    }
    return memory_of(view_, link_, memory_, slot.index, bytes);
}

Result<std::span<const std::byte>> TensorConsumer::view(PoolRef slot, std::size_t bytes) const {
    const Result<TensorMemory> memory = view_memory(slot, bytes);
    if (!memory.ok()) return memory.error();
    PACE_CHECK(memory.value().place == MemoryPlace::Host, "the host reads a tensor of a device");
    return std::span<const std::byte>{memory.value().data, bytes};
}

Status TensorConsumer::announce(PoolRef slot) {
    if (!is_elsewhere()) return {};
    const Result<std::size_t> used = used_bytes(slot);
    if (!used.ok()) return used.error();
    if (std::exchange(announced_[slot.index], slot.generation) == slot.generation) return {};
    if (link_ != nullptr) link_->expect(slot.index, used.value());
    return {};
}

bool TensorConsumer::has_arrived(PoolRef slot) const {
    return link_ == nullptr || link_->arrived(slot.index);
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
    if (planted(PlantedBug::RoomRequestTaken)) {
        return view_.header->room_wanted.exchange(0, std::memory_order_acq_rel) != 0;
    }
    return view_.header->room_wanted.fetch_or(0, std::memory_order_acq_rel) != 0;
}

}  // namespace paceline

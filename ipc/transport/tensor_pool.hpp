// The tensor pool: slots of fixed size for hidden states, in shared memory, read in place.
//
// One producer, one consumer, beside the ring of the same edge:
//
//     producer   acquire -> fill -> publish ---- PoolRef in a message -----> consumer
//     consumer   view (in place) -> release ---- the slot is free again ---> producer
//
// Slots may be released in any order. Bounded: "none free" is an answer. The state of a slot is
// its generation: even = free (the producer's), odd = published (the consumer's); each hand-over
// adds 1, so a reference to an earlier life of a slot is recognised.
//
//   offset 0        128            256                        data_offset
//   +--------------+--------------+--------------------------+-------------------------+
//   | constants    | room_wanted  | generation[slots] x 128B | slot[slots], slot_stride|
//   +--------------+--------------+--------------------------+-------------------------+
//
// Each end belongs to one thread of one process. What the peer says is range-checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/transport/ring_layout.hpp"
#include "ipc/transport/shm_region.hpp"
#include "ipc/transport/tensor_memory.hpp"

namespace paceline {

inline constexpr std::uint64_t kPoolMagic = 0x4c4f4f5045434150ULL;  // "PACEPOOL"
inline constexpr std::uint32_t kPoolLayoutVersion = 1;
inline constexpr std::uint32_t kPoolSlotsMax = 1024;
inline constexpr std::uint64_t kPoolSlotBytesMax = 1ULL << 30;

struct PoolHeader {
    alignas(kLineBytes) std::uint64_t magic;
    std::uint32_t layout_version;
    std::uint32_t slot_count;
    std::uint64_t slot_bytes;
    // As in RingHeader: 1 from when a producer asks for a slot until it has one.
    alignas(kLineBytes) std::atomic<std::uint32_t> room_wanted;
};
static_assert(sizeof(PoolHeader) == 2 * kLineBytes);

/// The name of a tensor in a pool; travels inside a hot message. The generation makes a reference
/// to a slot that was released and reused recognisable as stale.
struct PoolRef {
    std::uint32_t index = 0xffffffffU;
    std::uint32_t generation = 0;
    friend bool operator==(PoolRef, PoolRef) = default;
};

struct PoolSlotState {
    // Made odd by the producer with release after it has filled the slot, read by the consumer
    // with acquire before it reads it; made even by the consumer with release after its last
    // read, read by the producer with acquire before it overwrites.
    alignas(kLineBytes) std::atomic<std::uint32_t> generation;
    std::uint64_t used_bytes;  // of the tensor in it; written by the producer before it publishes
};
static_assert(sizeof(PoolSlotState) == kLineBytes);

[[nodiscard]] Result<std::size_t> pool_bytes(std::uint32_t slots, std::size_t slot_bytes);
[[nodiscard]] Result<ShmFile> create_pool(const std::string& name,
                                          std::uint32_t slots,
                                          std::size_t slot_bytes);
/// For one process: a pool in plain memory, aligned to kLineBytes, of pool_bytes() bytes.
void format_pool(std::span<std::byte> memory, std::uint32_t slots, std::size_t slot_bytes);

struct PoolView {
    PoolHeader* header = nullptr;
    PoolSlotState* states = nullptr;
    std::byte* data = nullptr;
    std::uint32_t slot_count = 0;
    std::size_t slot_bytes = 0;
    std::size_t slot_stride = 0;

    [[nodiscard]] static Result<PoolView> of(std::span<std::byte> memory);
    [[nodiscard]] std::span<std::byte> slot(std::uint32_t index) const {
        return {data + index * slot_stride, slot_bytes};
    }
};

class TensorProducer {
public:
    [[nodiscard]] static Result<TensorProducer> attach(ShmRegion region);
    [[nodiscard]] static Result<TensorProducer> attach_memory(std::span<std::byte> memory);

    /// A free slot, named as it will be once published; nothing when all are in flight or held.
    [[nodiscard]] std::optional<PoolRef> acquire();
    /// The memory of a slot that was acquired: slot_bytes(), aligned to 128. Anything else is a
    /// bug, here and below.
    [[nodiscard]] std::span<std::byte> bytes(PoolRef slot);
    /// The same memory, with the place where it lies.
    [[nodiscard]] TensorMemory place(PoolRef slot);
    /// Hands the slot to the consumer; its first `used_bytes` are meant. The message that
    /// announces it is sent after this.
    void publish(PoolRef slot, std::size_t used_bytes);
    /// Gives up a slot that was acquired and will not be published.
    void abandon(PoolRef slot);

    [[nodiscard]] std::size_t slot_bytes() const { return view_.slot_bytes; }
    [[nodiscard]] bool has_room();
    /// As RingProducer::want_room.
    void want_room();
    /// Whether acquire() found nothing since this was last asked.
    [[nodiscard]] bool take_starved() { return std::exchange(starved_, false); }
    /// Errc::Protocol after the consumer changed a slot that was not its own.
    [[nodiscard]] Status fault() const;

private:
    struct Slot {
        std::uint32_t generation = 0;  // as this end last left it; odd = published
        bool held = false;             // acquired, not yet published
    };
    TensorProducer(ShmRegion region, const PoolView& view)
        : region_{std::move(region)}, view_{view}, slots_(view.slot_count) {}
    [[nodiscard]] std::optional<std::uint32_t> find_free();
    [[nodiscard]] bool holds(PoolRef slot) const;

    ShmRegion region_;
    PoolView view_;
    std::vector<Slot> slots_;
    std::uint32_t cursor_ = 0;
    bool starved_ = false;
    bool wished_ = false;  // want_room() since the last slot
    bool corrupt_ = false;
};

class TensorConsumer {
public:
    [[nodiscard]] static Result<TensorConsumer> attach(ShmRegion region);
    [[nodiscard]] static Result<TensorConsumer> attach_memory(std::span<std::byte> memory);

    /// The first `bytes` of a published tensor, in place, valid until it is released.
    /// Errc::Protocol for an index, a generation or a size that the pool does not have: the
    /// reference came from a peer.
    [[nodiscard]] Result<std::span<const std::byte>> view(PoolRef slot, std::size_t bytes) const;
    /// The same with the place where it lies. To be read only.
    [[nodiscard]] Result<TensorMemory> view_memory(PoolRef slot, std::size_t bytes) const;
    /// Gives the slot back. A reference to an earlier life of the slot changes nothing.
    void release(PoolRef slot);
    /// Whether slots were released since this was last asked and the producer waits for one:
    /// then ring its doorbell.
    [[nodiscard]] bool take_room_wanted();

private:
    TensorConsumer(ShmRegion region, const PoolView& view)
        : region_{std::move(region)}, view_{view} {}
    [[nodiscard]] bool is_published(PoolRef slot) const;

    ShmRegion region_;
    PoolView view_;
    bool released_ = false;
};

}  // namespace paceline

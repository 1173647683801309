// The tensor pool: slots of fixed size for hidden states, read in place. Their states are in the
// host's shared memory; the slots themselves are beside them (PoolData::Here) or on a device
// (Elsewhere).
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
//                                                             only with PoolData::Here
//
// Of a pool with PoolData::Elsewhere each end is told where its slots lie (use_link(),
// use_memory()); until then the producer has no free slot and the consumer refuses every reference.
// With a link:
//
// - A published slot is put on its way when the first message that names it is in the ring, and
//   expected when that message is read: both ends ask announce() of each message, in the order of
//   the ring. A slot that no message names is neither sent nor expected; it stays published, as in
//   any pool.
// - A slot is free when its state says so and the link no longer reads it (OutLink::reusable()).
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

class InLink;
class OutLink;

inline constexpr std::uint64_t kPoolMagic = 0x4c4f4f5045434150ULL;  // "PACEPOOL"
inline constexpr std::uint32_t kPoolLayoutVersion = 2;
inline constexpr std::uint32_t kPoolSlotsMax = 1024;
inline constexpr std::uint64_t kPoolSlotBytesMax = 1ULL << 30;

/// Where the slots of a pool are: behind their states, or in memory that each end is told of.
enum class PoolData : std::uint32_t { Here = 0, Elsewhere = 1 };

struct PoolHeader {
    alignas(kLineBytes) std::uint64_t magic;
    std::uint32_t layout_version;
    std::uint32_t slot_count;
    std::uint64_t slot_bytes;
    std::uint32_t data;  // a PoolData
    // As in RingHeader: 1 from when a producer asks for a slot until it has one.
    alignas(kLineBytes) std::atomic<std::uint32_t> room_wanted;
};
static_assert(sizeof(PoolHeader) == 2 * kLineBytes);

/// The name of a tensor in a pool; travels inside a data message. The generation makes a reference
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

[[nodiscard]] Result<std::size_t> pool_bytes(std::uint32_t slots,
                                             std::size_t slot_bytes,
                                             PoolData data = PoolData::Here);
[[nodiscard]] Result<ShmFile> create_pool(const std::string& name,
                                          std::uint32_t slots,
                                          std::size_t slot_bytes,
                                          PoolData data = PoolData::Here);
/// For one process: a pool in plain memory, aligned to kLineBytes, of pool_bytes() bytes.
void format_pool(std::span<std::byte> memory,
                 std::uint32_t slots,
                 std::size_t slot_bytes,
                 PoolData data = PoolData::Here);
/// Bytes from one slot to the next, in a pool and in the memory given to use_memory().
[[nodiscard]] constexpr std::size_t pool_stride(std::size_t slot_bytes) {
    return (slot_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

struct PoolView {
    PoolHeader* header = nullptr;
    PoolSlotState* states = nullptr;
    std::byte* data = nullptr;  // nullptr: the slots are elsewhere
    std::uint32_t slot_count = 0;
    std::size_t slot_bytes = 0;
    std::size_t slot_stride = 0;

    [[nodiscard]] static Result<PoolView> of(std::span<std::byte> memory);
};

class TensorProducer {
public:
    [[nodiscard]] static Result<TensorProducer> attach(ShmRegion region);
    [[nodiscard]] static Result<TensorProducer> attach_memory(std::span<std::byte> memory);

    /// Only for a pool whose slots are elsewhere. The link, borrowed, is open.
    void use_link(OutLink* link);
    /// The link has failed: from now on no slot is free and nothing is sent. What was acquired
    /// keeps its memory.
    void close() { closed_ = true; }
    /// Device memory of this process for all slots, pool_stride() each; borrowed.
    void use_memory(std::byte* memory);

    /// A free slot, named as it will be once published; nothing when all are in flight or held.
    [[nodiscard]] std::optional<PoolRef> acquire();
    /// The memory of a slot that was acquired: slot_bytes(), aligned to 128. Anything else is a
    /// bug, here and below.
    [[nodiscard]] TensorMemory place(PoolRef slot);
    /// The same where it is the host's; that of a device is a bug.
    [[nodiscard]] std::span<std::byte> bytes(PoolRef slot);
    /// Hands the slot to the consumer; its first `used_bytes` are meant. The message that
    /// announces it is sent after this.
    void publish(PoolRef slot, std::size_t used_bytes);
    /// Gives up a slot that was acquired and will not be published.
    void abandon(PoolRef slot);

    /// A message that names `slot` is in the ring: puts it on its way if there is a link and this
    /// is the first such message. A name of an earlier life changes nothing.
    void announce(PoolRef slot);

    [[nodiscard]] std::size_t slot_bytes() const { return view_.slot_bytes; }
    [[nodiscard]] std::uint32_t slot_count() const { return view_.slot_count; }
    [[nodiscard]] bool is_elsewhere() const { return view_.data == nullptr; }
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
        bool announced = true;         // since it was published
        std::size_t used_bytes = 0;
    };
    TensorProducer(ShmRegion region, const PoolView& view)
        : region_{std::move(region)}, view_{view}, slots_(view.slot_count) {}
    [[nodiscard]] std::optional<std::uint32_t> find_free();
    [[nodiscard]] bool has_memory() const;
    [[nodiscard]] bool holds(PoolRef slot) const;

    ShmRegion region_;
    PoolView view_;
    OutLink* link_ = nullptr;
    std::byte* memory_ = nullptr;  // of use_memory()
    std::vector<Slot> slots_;
    std::uint32_t cursor_ = 0;
    bool starved_ = false;
    bool requested_ = false;  // want_room() since the last slot
    bool corrupt_ = false;
    bool closed_ = false;
};

class TensorConsumer {
public:
    [[nodiscard]] static Result<TensorConsumer> attach(ShmRegion region);
    [[nodiscard]] static Result<TensorConsumer> attach_memory(std::span<std::byte> memory);

    /// As the producer's.
    void use_link(InLink* link);
    void use_memory(std::byte* memory);

    /// The first `bytes` of a published tensor, in place, valid until it is released.
    /// Errc::Protocol for an index, a generation or a size that the pool does not have, or for a
    /// pool whose slots are nowhere yet: the reference came from a peer.
    [[nodiscard]] Result<TensorMemory> view_memory(PoolRef slot, std::size_t bytes) const;
    /// The same where it is the host's; that of a device is a bug.
    [[nodiscard]] Result<std::span<const std::byte>> view(PoolRef slot, std::size_t bytes) const;
    /// Bytes of a published tensor. Errors as view_memory().
    [[nodiscard]] Result<std::size_t> used_bytes(PoolRef slot) const;
    /// A message that names `slot` was read: expects it if there is a link and this is the first
    /// such message. Errc::Protocol as above.
    [[nodiscard]] Status announce(PoolRef slot);
    /// Whether it is there, after announce().
    [[nodiscard]] bool has_arrived(PoolRef slot) const;
    /// Gives the slot back. A reference to an earlier life of the slot changes nothing.
    void release(PoolRef slot);
    /// Whether slots were released since this was last asked and the producer waits for one:
    /// then ring its doorbell.
    [[nodiscard]] bool take_room_wanted();

    [[nodiscard]] std::size_t slot_bytes() const { return view_.slot_bytes; }
    [[nodiscard]] std::uint32_t slot_count() const { return view_.slot_count; }
    [[nodiscard]] bool is_elsewhere() const { return view_.data == nullptr; }

private:
    TensorConsumer(ShmRegion region, const PoolView& view)
        : region_{std::move(region)}, view_{view}, announced_(view.slot_count) {}
    [[nodiscard]] bool is_published(PoolRef slot) const;
    [[nodiscard]] bool has_memory() const;

    ShmRegion region_;
    PoolView view_;
    InLink* link_ = nullptr;
    std::byte* memory_ = nullptr;           // of use_memory()
    std::vector<std::uint32_t> announced_;  // the generation of each slot that was announced last
    bool released_ = false;
};

}  // namespace paceline

// The ring: one producer, one consumer, framed data messages in shared memory (ring_layout.hpp).
//
// RingProducer and RingConsumer are the two ends; each belongs to one thread of one process.
// Neither waits: try_push returns Full, try_pop returns Empty; a process waits on its doorbell.
// The consumer copies a frame out, then checks it against its table of rules, then uses it. After a
// peer has broken the layout the ring stays Corrupt: the edge must be closed and a new ring made. A
// producer that dies while writing leaves at most one frame, which was not published and is
// invisible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/kind_rule.hpp"
#include "ipc/transport/push.hpp"
#include "ipc/transport/ring_layout.hpp"
#include "ipc/transport/shm_region.hpp"

namespace paceline {

struct RingOptions {
    std::uint32_t slots = 64;         // a power of two, 2 .. kRingSlotsMax
    std::uint32_t urgent_slots = 16;  // < slots
    std::uint32_t payload_bytes = 0;  // 1 .. kFramePayloadMax
    Epoch epoch{1};
    bool checksums = false;  // of payloads; header checks are always on
};

/// Bytes of memory for a ring, and the header that it begins with. Errc::BadArgument says which
/// option is out of range.
[[nodiscard]] Result<std::size_t> ring_bytes(const RingOptions& options);
[[nodiscard]] Result<ShmFile> create_ring(const std::string& name, const RingOptions& options);
/// For tests: a ring in plain memory, aligned to kLineBytes, of ring_bytes() bytes.
void format_ring(std::span<std::byte> memory, const RingOptions& options);

/// What both ends know once the constants have been checked.
struct RingView {
    RingHeader* header = nullptr;
    std::byte* slots = nullptr;
    std::uint64_t slot_count = 0;
    std::uint64_t urgent_slots = 0;
    std::size_t slot_stride = 0;
    std::uint32_t payload_bytes = 0;
    std::uint32_t epoch = 0;
    bool checksums = false;

    /// Errc::Protocol if the constants contradict each other or the size of the memory.
    [[nodiscard]] static Result<RingView> of(std::span<std::byte> memory, Epoch epoch);
    [[nodiscard]] std::byte* slot(std::uint64_t count) const {
        return slots + (count & (slot_count - 1)) * slot_stride;
    }
};

class RingProducer {
public:
    /// `epoch` is the producing stage's, and must be the ring's. `rules` must outlive the ring.
    [[nodiscard]] static Result<RingProducer> attach(ShmRegion region,
                                                     Epoch epoch,
                                                     std::span<const KindRule> rules);
    [[nodiscard]] static Result<RingProducer> attach_memory(std::span<std::byte> memory,
                                                            Epoch epoch,
                                                            std::span<const KindRule> rules);

    /// Copies the frame in and publishes it. A kind or length without a rule is a bug. Normal
    /// frames meet Full while `urgent_slots` slots are still free.
    [[nodiscard]] Push try_push(std::uint16_t kind, std::span<const std::byte> payload);

    /// The same in two steps, for batches: what was put is invisible until publish().
    [[nodiscard]] Push try_put(std::uint16_t kind, std::span<const std::byte> payload);
    void publish();

    /// Whether a frame of this urgency would be accepted now.
    [[nodiscard]] bool has_room(Urgency urgency);
    /// Asks the consumer to ring whenever it makes room, until the next frame is put. Follow it
    /// with has_room(): room that was made just before would otherwise be slept over.
    void want_room();

    /// Errc::Protocol after the consumer's count made no sense, or a frame was longer than the
    /// ring's (every push then says Full).
    [[nodiscard]] Status fault() const;

private:
    RingProducer(ShmRegion region, const RingView& view, std::span<const KindRule> rules)
        : region_{std::move(region)}, view_{view}, rules_{rules} {}
    ShmRegion region_;
    RingView view_;
    std::span<const KindRule> rules_;
    std::uint64_t head_ = 0;       // frames put
    std::uint64_t tail_seen_ = 0;  // frames that the consumer was known to have taken
    std::size_t too_long_ = 0;     // bytes of a frame that the ring has no room for
    bool requested_ = false;       // want_room() since the last frame
    bool corrupt_ = false;
};

enum class Pop : std::uint8_t { Frame, Empty, Corrupt };

struct Popped {
    Pop outcome = Pop::Empty;
    std::uint16_t kind = 0;
    std::span<const std::byte> payload;  // in the caller's buffer
};

class RingConsumer {
public:
    /// `epoch` is the producing stage's; frames of any other are dropped and counted.
    [[nodiscard]] static Result<RingConsumer> attach(ShmRegion region,
                                                     Epoch epoch,
                                                     std::span<const KindRule> rules);
    [[nodiscard]] static Result<RingConsumer> attach_memory(std::span<std::byte> memory,
                                                            Epoch epoch,
                                                            std::span<const KindRule> rules);

    /// Copies the oldest frame into `buffer` (at least payload_bytes() long) and frees its slot.
    [[nodiscard]] Popped try_pop(std::span<std::byte> buffer);
    /// Whether try_pop would find something (a frame, or corruption to report).
    [[nodiscard]] bool has_frame() const;
    /// Whether slots were freed since this was last asked, by frames taken or by stale ones
    /// dropped, and the producer waits for one: then ring its doorbell. Cheap when none was.
    [[nodiscard]] bool take_room_wanted();

    [[nodiscard]] std::uint32_t payload_bytes() const { return view_.payload_bytes; }
    [[nodiscard]] std::uint64_t stale_frames() const { return stale_frames_; }
    /// Errc::Protocol with what was wrong, after Pop::Corrupt.
    [[nodiscard]] Status fault() const;

private:
    RingConsumer(ShmRegion region, const RingView& view, std::span<const KindRule> rules)
        : region_{std::move(region)}, view_{view}, rules_{rules} {}
    [[nodiscard]] const char* complaint_about(const FrameHeader& frame,
                                              std::size_t buffer_bytes) const;
    [[nodiscard]] Popped corrupt(const char* complaint, std::uint64_t value);
    void free_slot();

    ShmRegion region_;
    RingView view_;
    std::span<const KindRule> rules_;
    std::uint64_t tail_ = 0;       // frames taken
    std::uint64_t head_seen_ = 0;  // frames known to be published
    std::uint64_t stale_frames_ = 0;
    bool freed_ = false;
    const char* complaint_ = nullptr;
    std::uint64_t complaint_value_ = 0;
};

}  // namespace paceline

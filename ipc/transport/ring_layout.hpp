// The drawn layout of a ring in shared memory.
//
//   offset 0        128        256        384            512
//   +--------------+----------+----------+--------------+----------------------------+
//   | constants    | head     | tail     | room_wanted  | slots[slot_count]          |
//   +--------------+----------+----------+--------------+----------------------------+
//                    producer   consumer   both
//
//   a slot, slot_stride bytes (a multiple of 128):
//   0      8       12    16     18      20             24              28    32
//   +------+-------+-----+------+-------+--------------+---------------+-----+---------+
//   | seq  | epoch | len | kind | flags | header_check | payload_check | 0   | payload |
//   +------+-------+-----+------+-------+--------------+---------------+-----+---------+
//
// head counts the frames ever published, tail those ever consumed; both only grow, and
// 0 <= head - tail <= slot_count. Frame n lives in slot n % slot_count and has seq n + 1.
// The constants are read once, at attach, checked, and never looked at again.
// Lines are 128 bytes: neighbouring 64-byte lines are fetched in pairs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace paceline {

inline constexpr std::size_t kLineBytes = 128;
inline constexpr std::uint64_t kRingMagic = 0x474e495245434150ULL;  // "PACERING"
inline constexpr std::uint32_t kRingLayoutVersion = 1;
inline constexpr std::uint32_t kRingSlotsMax = 1U << 16;
inline constexpr std::uint32_t kFramePayloadMax = 1U << 20;

inline constexpr std::uint32_t kRingChecksums = 1;  // RingHeader::flags: payloads carry a checksum

struct RingHeader {
    alignas(kLineBytes) std::uint64_t magic;
    std::uint32_t layout_version;
    std::uint32_t slot_count;    // a power of two
    std::uint32_t urgent_slots;  // the last free slots, which only urgent frames may take
    std::uint32_t slot_stride;
    std::uint32_t payload_bytes;  // the longest payload of a frame
    std::uint32_t epoch;          // of the producer; a new incarnation gets a new ring
    std::uint32_t flags;
    // Written by the producer with release after the frame, read by the consumer with acquire.
    alignas(kLineBytes) std::atomic<std::uint64_t> head;
    // Written by the consumer with release after it has copied the frame out, read by the
    // producer with acquire before it overwrites the slot.
    alignas(kLineBytes) std::atomic<std::uint64_t> tail;
    // 1 from when a producer asks for room until it has put a frame: while it is, the consumer
    // rings the producer's doorbell for each room it makes. Read-modify-write where the producer
    // sets it and the consumer looks, see spsc_ring.cpp.
    alignas(kLineBytes) std::atomic<std::uint32_t> room_wanted;
};
static_assert(sizeof(RingHeader) == 4 * kLineBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "must work across processes");
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "must work across processes");

struct FrameHeader {
    std::uint64_t seq;
    std::uint32_t epoch;
    std::uint32_t len;
    std::uint16_t kind;
    std::uint16_t flags;
    std::uint32_t header_check;   // over the fields before it, always
    std::uint32_t payload_check;  // over the payload, if the ring has kRingChecksums, else 0
    std::uint32_t zero;
};
static_assert(sizeof(FrameHeader) == 32);

}  // namespace paceline

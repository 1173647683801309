#include "ipc/transport/spsc_ring.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/core.h>
#include <new>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

constexpr std::size_t stride_of(std::uint32_t payload_bytes) {
    return (sizeof(FrameHeader) + payload_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

/// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

std::uint32_t header_check(const FrameHeader& frame) {
    const std::uint64_t sizes = (std::uint64_t{frame.epoch} << 32) | frame.len;
    const std::uint64_t kinds = (std::uint64_t{frame.kind} << 16) | frame.flags;
    return static_cast<std::uint32_t>(
        mix(mix(frame.seq ^ kRingMagic) ^ mix(sizes + kinds * 0x9e3779b97f4a7c15ULL)));
}

std::uint32_t payload_check(std::span<const std::byte> payload) {
    std::uint64_t hash = payload.size() ^ kRingMagic;
    while (payload.size() >= sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, payload.data(), sizeof word);
        hash = mix(hash ^ word);
        payload = payload.subspan(sizeof word);
    }
    std::uint64_t rest = 0;
    std::memcpy(&rest, payload.data(), payload.size());
    return static_cast<std::uint32_t>(mix(hash ^ rest));
}

/// Writes the constants; counts stay as they are, zero in fresh memory.
void write_constants(RingHeader& header, const RingOptions& options) {
    header.magic = kRingMagic;
    header.layout_version = kRingLayoutVersion;
    header.slot_count = options.slots;
    header.urgent_slots = options.urgent_slots;
    header.slot_stride = static_cast<std::uint32_t>(stride_of(options.payload_bytes));
    header.payload_bytes = options.payload_bytes;
    header.epoch = options.epoch.value;
    header.flags = options.checksums ? kRingChecksums : 0;
}

/// memcpy. Where faults are compiled in, in two halves with a fault point between them.
void copy_past(FaultPoint halfway, std::byte* to, const std::byte* from, std::size_t bytes) {
    const std::size_t first = kFaultsCompiledIn ? bytes / 2 : 0;
    if (kFaultsCompiledIn) {
        std::memcpy(to, from, first);
        fault_point(halfway);
    }
    std::memcpy(to + first, from + first, bytes - first);
}

Error bad_constant(const char* what, std::uint64_t value) {
    return {Errc::Protocol, fmt::format("a ring's header is wrong: {} is {}", what, value)};
}

Error too_small(const RingView& view, std::span<const KindRule> rules) {
    return {Errc::Protocol,
            fmt::format("a ring for frames of {} bytes cannot carry every kind: one has at least "
                        "{} bytes",
                        view.payload_bytes, bytes_needed(rules))};
}

}  // namespace

Result<std::size_t> ring_bytes(const RingOptions& options) {
    if (!std::has_single_bit(options.slots) || options.slots < 2 || options.slots > kRingSlotsMax) {
        return Error{Errc::BadArgument,
                     fmt::format("a ring needs a power of two of slots, 2 to {}, not {}",
                                 kRingSlotsMax, options.slots)};
    }
    if (options.urgent_slots >= options.slots) {
        return Error{Errc::BadArgument, fmt::format("a ring of {} slots cannot reserve {} of them",
                                                    options.slots, options.urgent_slots)};
    }
    if (options.payload_bytes == 0 || options.payload_bytes > kFramePayloadMax) {
        return Error{Errc::BadArgument,
                     fmt::format("a ring's frames must have 1 to {} bytes, not {}",
                                 kFramePayloadMax, options.payload_bytes)};
    }
    return sizeof(RingHeader) + std::size_t{options.slots} * stride_of(options.payload_bytes);
}

Result<ShmFile> create_ring(const std::string& name, const RingOptions& options) {
    const Result<std::size_t> bytes = ring_bytes(options);
    if (!bytes.ok()) return bytes.error();
    RingHeader header{};
    write_constants(header, options);
    return ShmFile::create(name, bytes.value(), std::as_bytes(std::span{&header, 1}));
}

void format_ring(std::span<std::byte> memory, const RingOptions& options) {
    const Result<std::size_t> bytes = ring_bytes(options);
    PACE_CHECK(bytes.ok() && memory.size() == bytes.value(), "memory of the wrong size for a ring");
    std::memset(memory.data(), 0, memory.size());
    write_constants(*new (memory.data()) RingHeader{}, options);
}

Result<RingView> RingView::of(std::span<std::byte> memory, Epoch epoch) {
    if (memory.size() < sizeof(RingHeader)) return bad_constant("the size", memory.size());
    auto* header = std::launder(reinterpret_cast<RingHeader*>(memory.data()));
    // Each constant is read once; from here on only the copies are used.
    RingOptions options;
    const std::uint64_t magic = header->magic;
    const std::uint32_t version = header->layout_version;
    const std::uint32_t stride = header->slot_stride;
    const std::uint32_t flags = header->flags;
    options.slots = header->slot_count;
    options.urgent_slots = header->urgent_slots;
    options.payload_bytes = header->payload_bytes;
    options.epoch = Epoch{header->epoch};
    if (magic != kRingMagic) return bad_constant("the magic number", magic);
    if (version != kRingLayoutVersion) return bad_constant("the layout version", version);
    const Result<std::size_t> bytes = ring_bytes(options);
    if (!bytes.ok())
        return Error{Errc::Protocol, "a ring's header is wrong: " + bytes.error().what};
    if (stride != stride_of(options.payload_bytes)) return bad_constant("the slot stride", stride);
    if (bytes.value() > memory.size()) return bad_constant("the size", memory.size());
    if (options.epoch != epoch) return bad_constant("the epoch", options.epoch.value);

    RingView view;
    view.header = header;
    view.slots = memory.data() + sizeof(RingHeader);
    view.slot_count = options.slots;
    view.urgent_slots = options.urgent_slots;
    view.slot_stride = stride;
    view.payload_bytes = options.payload_bytes;
    view.epoch = epoch.value;
    view.checksums = (flags & kRingChecksums) != 0;
    return view;
}

// ---- producer ----

Result<RingProducer> RingProducer::attach(ShmRegion region,
                                          Epoch epoch,
                                          std::span<const KindRule> rules) {
    Result<RingProducer> ring = attach_memory(region.bytes(), epoch, rules);
    if (ring.ok()) ring.value().region_ = std::move(region);
    return ring;
}

Result<RingProducer> RingProducer::attach_memory(std::span<std::byte> memory,
                                                 Epoch epoch,
                                                 std::span<const KindRule> rules) {
    const Result<RingView> view = RingView::of(memory, epoch);
    if (!view.ok()) return view.error();
    if (bytes_needed(rules) > view.value().payload_bytes) return too_small(view.value(), rules);
    RingProducer ring{ShmRegion{}, view.value(), rules};
    // Relaxed: only this end writes head. Not 0 when a ring is attached a second time.
    ring.head_ = view.value().header->head.load(std::memory_order_relaxed);
    // Acquire pairs with the consumer's release of tail in free_slot().
    ring.tail_seen_ = view.value().header->tail.load(std::memory_order_acquire);
    const std::uint64_t waiting = ring.head_ - ring.tail_seen_;
    if (waiting > view.value().slot_count) return bad_constant("the count of frames", waiting);
    return ring;
}

bool RingProducer::has_room(Urgency urgency) {
    const bool any_slot = urgency == Urgency::Urgent || planted(PlantedBug::RingReserveIgnored);
    const std::uint64_t reserved = any_slot ? 0 : view_.urgent_slots;
    const std::uint64_t beyond = planted(PlantedBug::RingFullOffByOne) ? 1 : 0;
    if (head_ - tail_seen_ + reserved < view_.slot_count + beyond) return !corrupt_;
    // Acquire pairs with the consumer's release of tail in free_slot(): its last read of the
    // slots before `tail` happened before we overwrite them.
    const std::uint64_t tail = view_.header->tail.load(std::memory_order_acquire);
    // The count may not run backwards nor ahead of us.
    if (head_ - tail > view_.slot_count || tail < tail_seen_) corrupt_ = true;
    if (corrupt_) return false;
    tail_seen_ = tail;
    return head_ - tail + reserved < view_.slot_count + beyond;
}

Push RingProducer::try_put(std::uint16_t kind, std::span<const std::byte> payload) {
    const KindRule* rule = find_rule(rules_, kind);
    PACE_CHECK(rule != nullptr, "a frame of a kind that this ring does not carry");
    PACE_CHECK(allows(*rule, payload), "a frame of a length that its kind does not have");
    if (payload.size() > view_.payload_bytes) {
        too_long_ = payload.size();
        corrupt_ = true;
    }
    if (corrupt_ || !has_room(rule->urgency)) return Push::Full;
    fault_point(FaultPoint::RingClaimed);

    std::byte* slot = view_.slot(head_);
    FrameHeader frame{};
    frame.seq = head_ + 1;
    frame.epoch = view_.epoch;
    frame.len = static_cast<std::uint32_t>(payload.size());
    frame.kind = kind;
    frame.header_check = header_check(frame);
    if (view_.checksums) frame.payload_check = payload_check(payload);
    if (planted(PlantedBug::PublishBeforePayload)) {
        std::memcpy(slot, &frame, sizeof frame);
        view_.header->head.store(head_ + 1, std::memory_order_release);
    }
    copy_past(FaultPoint::RingMidPayload, slot + sizeof frame, payload.data(), payload.size());
    std::memcpy(slot, &frame, sizeof frame);
    fault_point(FaultPoint::RingWritten);
    ++head_;
    // Relaxed: a consumer that still finds the request rings once too often.
    if (std::exchange(requested_, false)) {
        view_.header->room_wanted.store(0, std::memory_order_relaxed);
    }
    return Push::Ok;
}

void RingProducer::publish() {
    // Release pairs with the consumer's acquire of head in has_frame(): a consumer that sees the
    // new count sees every frame below it.
    view_.header->head.store(head_, std::memory_order_release);
    fault_point(FaultPoint::RingPublished);
}

Push RingProducer::try_push(std::uint16_t kind, std::span<const std::byte> payload) {
    const Push push = try_put(kind, payload);
    if (push == Push::Ok) publish();
    return push;
}

void RingProducer::want_room() {
    // Read-modify-write, like its partner in take_room_wanted(): of the two one comes second.
    // If it is this one, it acquires the tail that the consumer released before; if it is the
    // consumer's, it finds the request and rings.
    // The request stands until a frame was put. Were it taken by the first ring, one that comes
    // after the request and before we sleep, for room that we have used already, would take it
    // along, and no bell would be rung for the next room.
    requested_ = true;
    view_.header->room_wanted.exchange(1, std::memory_order_acq_rel);
}

Status RingProducer::fault() const {
    if (!corrupt_) return {};
    if (too_long_ != 0) {
        return Error{Errc::Protocol,
                     fmt::format("a ring for frames of {} bytes has no room for one "
                                 "of {}",
                                 view_.payload_bytes, too_long_)};
    }
    return Error{
        Errc::Protocol,
        fmt::format("the consumer of a ring claims a count that cannot be (frames put: {})",
                    head_)};
}

// ---- consumer ----

Result<RingConsumer> RingConsumer::attach(ShmRegion region,
                                          Epoch epoch,
                                          std::span<const KindRule> rules) {
    Result<RingConsumer> ring = attach_memory(region.bytes(), epoch, rules);
    if (ring.ok()) ring.value().region_ = std::move(region);
    return ring;
}

Result<RingConsumer> RingConsumer::attach_memory(std::span<std::byte> memory,
                                                 Epoch epoch,
                                                 std::span<const KindRule> rules) {
    const Result<RingView> view = RingView::of(memory, epoch);
    if (!view.ok()) return view.error();
    if (bytes_needed(rules) > view.value().payload_bytes) return too_small(view.value(), rules);
    RingConsumer ring{ShmRegion{}, view.value(), rules};
    // Relaxed: only this end writes tail.
    ring.tail_ = view.value().header->tail.load(std::memory_order_relaxed);
    ring.head_seen_ = ring.tail_;
    return ring;
}

bool RingConsumer::has_frame() const {
    // Acquire pairs with the producer's release of head in publish().
    return complaint_ != nullptr || head_seen_ != tail_ ||
           view_.header->head.load(std::memory_order_acquire) != tail_;
}

Popped RingConsumer::try_pop(std::span<std::byte> buffer) {
    if (complaint_ != nullptr) return {Pop::Corrupt, 0, {}};
    for (;;) {
        if (head_seen_ == tail_) {
            // Acquire pairs with the producer's release of head in publish().
            const std::uint64_t head = view_.header->head.load(std::memory_order_acquire);
            if (head - tail_ > view_.slot_count) return corrupt("the count of frames", head);
            head_seen_ = head;
            if (head_seen_ == tail_) return {Pop::Empty, 0, {}};
        }
        // Copied before it is checked: a peer's later writes change nothing.
        const std::byte* slot = view_.slot(tail_);
        FrameHeader frame{};
        std::memcpy(&frame, slot, sizeof frame);
        if (const char* complaint = complaint_about(frame, buffer.size())) {
            return corrupt(complaint, frame.seq);
        }
        if (frame.epoch != view_.epoch &&
            !planted(
                PlantedBug::RingEpochIgnored)) {  // of a former incarnation: expected, not an error
            ++stale_frames_;
            free_slot();
            continue;
        }
        const std::span<std::byte> payload = buffer.first(frame.len);
        if (planted(PlantedBug::FreeBeforeCopy)) free_slot();
        copy_past(FaultPoint::RingMidCopy, payload.data(), slot + sizeof frame, frame.len);
        if (!planted(PlantedBug::FreeBeforeCopy)) free_slot();
        if (view_.checksums && payload_check(payload) != frame.payload_check) {
            return corrupt("the checksum of the payload of frame", frame.seq);
        }
        if (!allows(*find_rule(rules_, frame.kind), payload)) {
            return corrupt("the length of frame", frame.seq);
        }
        return {Pop::Frame, frame.kind, payload};
    }
}

const char* RingConsumer::complaint_about(const FrameHeader& frame,
                                          std::size_t buffer_bytes) const {
    if (frame.header_check != header_check(frame)) return "the header check of frame";
    if (frame.seq != tail_ + 1) return "the sequence number";
    const KindRule* rule = find_rule(rules_, frame.kind);
    if (rule == nullptr) return "the kind of frame";
    if (frame.len < rule->bytes_min || frame.len > std::min(rule->bytes_max, view_.payload_bytes))
        return "the length of frame";
    PACE_CHECK(frame.len <= buffer_bytes, "a buffer shorter than the ring's payload");
    return nullptr;
}

Popped RingConsumer::corrupt(const char* complaint, std::uint64_t value) {
    complaint_ = complaint;
    complaint_value_ = value;
    return {Pop::Corrupt, 0, {}};
}

void RingConsumer::free_slot() {
    ++tail_;
    freed_ = true;
    // Release pairs with the producer's acquire of tail in has_room(): it overwrites the slot
    // only after we have copied it out.
    view_.header->tail.store(tail_, std::memory_order_release);
}

bool RingConsumer::take_room_wanted() {
    // Room that was made before this was last asked is seen by the producer that asks after it.
    if (!std::exchange(freed_, false)) return false;
    // See want_room().
    if (planted(PlantedBug::RoomRequestTaken)) {
        return view_.header->room_wanted.exchange(0, std::memory_order_acq_rel) != 0;
    }
    return view_.header->room_wanted.fetch_or(0, std::memory_order_acq_rel) != 0 &&
           !planted(PlantedBug::RoomRequestForgotten);
}

Status RingConsumer::fault() const {
    if (complaint_ == nullptr) return {};
    return Error{Errc::Protocol, fmt::format("a corrupt ring: {} is wrong ({}, after {} frames)",
                                             complaint_, complaint_value_, tail_)};
}

}  // namespace paceline

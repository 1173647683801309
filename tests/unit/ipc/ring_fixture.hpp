// A ring in plain memory with two kinds of frame, and a look at its bytes from outside.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "ipc/transport/spsc_ring.hpp"

namespace paceline::test {

inline constexpr std::uint16_t kData = 1;    // Normal
inline constexpr std::uint16_t kUrgent = 2;  // may use reserved slots
inline constexpr std::array kRules = {
    KindRule{kData, 1, 64, Urgency::Normal},
    KindRule{kUrgent, 8, 8, Urgency::Urgent},
};

class RingFixture {
public:
    explicit RingFixture(std::uint32_t slots = 8,
                         std::uint32_t urgent = 2,
                         bool checksums = false) {
        options.slots = slots;
        options.urgent_slots = urgent;
        options.payload_bytes = 64;
        options.epoch = Epoch{7};
        options.checksums = checksums;
        lines_.resize(ring_bytes(options).value() / sizeof(Line));
        format_ring(memory(), options);
    }

    [[nodiscard]] std::span<std::byte> memory() {
        return {lines_.front().bytes, lines_.size() * sizeof(Line)};
    }
    [[nodiscard]] RingHeader& header() { return *reinterpret_cast<RingHeader*>(memory().data()); }
    /// The frame header of slot `index`, writable from outside like by a rogue peer.
    [[nodiscard]] FrameHeader& frame(std::size_t index) {
        const std::size_t stride = header().slot_stride;
        return *reinterpret_cast<FrameHeader*>(memory().data() + sizeof(RingHeader) +
                                               index * stride);
    }
    [[nodiscard]] RingProducer producer() {
        return RingProducer::attach_memory(memory(), options.epoch, kRules).value();
    }
    [[nodiscard]] RingConsumer consumer() {
        return RingConsumer::attach_memory(memory(), options.epoch, kRules).value();
    }

    RingOptions options;

private:
    struct alignas(kLineBytes) Line {
        std::byte bytes[kLineBytes];
    };
    std::vector<Line> lines_;
};

inline Push push(RingProducer& ring, std::uint64_t value, std::uint16_t kind = kData) {
    return ring.try_push(kind, std::as_bytes(std::span{&value, 1}));
}

/// The value of the next frame; 0 if there is none.
inline std::uint64_t pop(RingConsumer& ring) {
    std::array<std::byte, 64> buffer{};
    const Popped popped = ring.try_pop(buffer);
    if (popped.outcome != Pop::Frame) return 0;
    std::uint64_t value = 0;
    std::memcpy(&value, popped.payload.data(), sizeof value);
    return value;
}

inline Pop pop_outcome(RingConsumer& ring) {
    std::array<std::byte, 64> buffer{};
    return ring.try_pop(buffer).outcome;
}

}  // namespace paceline::test

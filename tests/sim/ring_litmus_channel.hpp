// Channel: one directed edge of a litmus world, its memory, its messages, and what must be true.
//
// A message says what it is and is filled with bytes that follow from that, so that the one who
// receives it can tell a whole one from a torn, repeated, lost or foreign one. What was put and
// what was taken is counted here, outside of the ring, as the truth that the ring is held against.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ipc/transport/spsc_ring.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "tests/sim/ring_litmus_fibers.hpp"

namespace paceline::test {

/// Everything that a seed decides before the first turn.
struct Scenario {
    std::uint32_t slots = 2;
    std::uint32_t urgent_slots = 1;
    std::uint32_t pool_slots = 0;  // 0: no tensors
    bool checksums = false;
    bool both_ways = false;                   // a cycle: questions, and answers that are urgent
    bool producer_dies = false;               // and a successor goes on; one way, no tensors
    std::array<bool, 2> haunted{};            // the ring holds frames of a dead incarnation
    std::array<std::uint32_t, 2> messages{};  // what each end sends of its own accord
    std::uint32_t switch_one_in = 2;

    [[nodiscard]] static Scenario of(std::uint64_t seed);
    [[nodiscard]] std::string text() const;
};

inline constexpr Epoch kOldEpoch{6};
inline constexpr Epoch kEpoch{7};
inline constexpr std::size_t kTensorBytesMax = 64;
inline constexpr std::uint32_t kMessageBytesMax = 72;
inline constexpr std::uint16_t kNormalMessage = 1;
inline constexpr std::uint16_t kUrgentMessage = 2;

enum class Sort : std::uint32_t { Chatter, Question, Answer, Shout };

struct Message {
    std::uint32_t channel;
    std::uint32_t epoch;
    std::uint32_t index;  // 0, 1, 2 .. of this channel and epoch
    Sort sort;
    PoolRef tensor;  // generation 0: there is none
    std::uint32_t tensor_bytes;
};

inline constexpr std::array kMessageRules = {
    KindRule{kNormalMessage, sizeof(Message), kMessageBytesMax, Urgency::Normal},
    KindRule{kUrgentMessage, sizeof(Message), kMessageBytesMax, Urgency::Urgent},
};

[[nodiscard]] constexpr Urgency urgency_of(Sort sort) {
    return sort == Sort::Answer || sort == Sort::Shout ? Urgency::Urgent : Urgency::Normal;
}
[[nodiscard]] constexpr std::uint16_t kind_of(Sort sort) {
    return urgency_of(sort) == Urgency::Urgent ? kUrgentMessage : kNormalMessage;
}

/// The bytes of a frame: the message and its filling.
[[nodiscard]] std::vector<std::byte> write_message(const Message& message);
/// What is wrong with a frame that should be message `index` of the channel; empty if nothing.
[[nodiscard]] std::string complaint_about(std::span<const std::byte> frame,
                                          std::uint16_t kind,
                                          std::uint32_t channel,
                                          std::uint32_t index);
[[nodiscard]] std::byte tensor_byte(std::uint32_t channel, std::uint32_t index, std::size_t at);
[[nodiscard]] constexpr std::uint32_t tensor_bytes_of(std::uint32_t index) {
    return 16 + index * 13 % 48;
}

class Channel {
public:
    Channel(std::uint32_t number, const Scenario& scenario);

    [[nodiscard]] std::uint32_t number() const { return number_; }
    /// An incarnation of the producer that still believes in its old epoch.
    [[nodiscard]] RingProducer old_producer();
    [[nodiscard]] RingProducer producer();
    [[nodiscard]] RingConsumer consumer();
    [[nodiscard]] std::span<std::byte> pool_memory();
    /// Frames published, by any incarnation.
    [[nodiscard]] std::uint64_t published() const;

    void count_put(Sort sort) { put_.push_back(urgency_of(sort)); }
    void count_taken() { ++taken_; }
    [[nodiscard]] std::uint32_t put() const { return static_cast<std::uint32_t>(put_.size()); }
    [[nodiscard]] std::uint32_t taken() const { return taken_; }
    /// After a death: what was put and not published was never there.
    void forget_after(std::uint64_t messages) { put_.resize(messages); }
    /// At most; the consumer may have taken one that it has not handed over.
    [[nodiscard]] std::uint32_t urgent_on_the_way() const;

private:
    struct alignas(kLineBytes) Line {
        std::byte bytes[kLineBytes];
    };
    [[nodiscard]] RingHeader& header();

    std::uint32_t number_;
    std::vector<Line> ring_;
    std::vector<Line> pool_;
    std::vector<Urgency> put_;
    std::uint32_t taken_ = 0;
};

}  // namespace paceline::test

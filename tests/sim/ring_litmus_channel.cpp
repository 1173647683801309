#include "tests/sim/ring_litmus_channel.hpp"

#include <cstring>

namespace paceline::test {
namespace {

/// A byte that follows from where it stands and from nothing else.
std::byte filling(std::uint32_t salt, std::uint32_t index, std::size_t at) {
    SeededRandom random{(std::uint64_t{salt} << 40U) ^ (std::uint64_t{index} << 8U) ^ at};
    return static_cast<std::byte>(random.next());
}

constexpr std::size_t message_bytes(std::uint32_t index) {
    return sizeof(Message) + index * 5 % (kMessageBytesMax - sizeof(Message) + 1);
}

std::span<std::byte> bytes_of(auto& lines) {
    return std::as_writable_bytes(std::span{lines});
}

}  // namespace

Scenario Scenario::of(std::uint64_t seed) {
    SeededRandom random{seed};
    Scenario scenario;
    scenario.slots = random.one_in(2) ? 2 : 4;
    scenario.urgent_slots = random.below(scenario.slots);
    scenario.checksums = random.one_in(4);
    // Answers need a place of their own, or a cycle may stand still by its own rules.
    scenario.both_ways = scenario.urgent_slots > 0 && random.one_in(2);
    scenario.pool_slots = random.one_in(2) ? 1 + random.below(3) : 0;
    scenario.producer_dies = !scenario.both_ways && scenario.pool_slots == 0 && !random.one_in(3);
    for (std::size_t end = 0; end < 2; ++end) {
        if (end == 1 && !scenario.both_ways) break;
        scenario.messages[end] = 4 + random.below(20);
        scenario.haunted[end] = random.one_in(3);
    }
    scenario.switch_one_in = 1U << random.below(5);
    return scenario;
}

std::string Scenario::text() const {
    return std::to_string(slots) + " slots, " + std::to_string(urgent_slots) + " urgent, " +
           std::to_string(pool_slots) + " tensors, " + (both_ways ? "both ways" : "one way") +
           (producer_dies ? ", the producer dies" : "") + (checksums ? ", checksums" : "") +
           (haunted[0] || haunted[1] ? ", frames of an old epoch" : "") + ", messages " +
           std::to_string(messages[0]) + " and " + std::to_string(messages[1]) +
           ", a switch at one in " + std::to_string(switch_one_in);
}

std::vector<std::byte> write_message(const Message& message) {
    std::vector<std::byte> frame(message_bytes(message.index));
    std::memcpy(frame.data(), &message, sizeof message);
    for (std::size_t at = sizeof message; at < frame.size(); ++at) {
        frame[at] = filling(message.channel * 2, message.index, at);
    }
    return frame;
}

std::string complaint_about(std::span<const std::byte> frame,
                            std::uint16_t kind,
                            std::uint32_t channel,
                            std::uint32_t index) {
    Message message{};
    std::memcpy(&message, frame.data(), sizeof message);
    const std::string who = "message " + std::to_string(index);
    if (message.epoch != kEpoch.value) return who + ": one of an old epoch was delivered";
    if (message.channel != channel) return who + ": one of another channel was delivered";
    if (message.index != index) {
        return who + ": message " + std::to_string(message.index) + " was delivered in its place";
    }
    if (kind != kind_of(message.sort)) return who + " has the wrong kind";
    if (frame.size() != message_bytes(index)) return who + " has the wrong length";
    for (std::size_t at = sizeof message; at < frame.size(); ++at) {
        if (frame[at] != filling(channel * 2, index, at)) return who + " is torn";
    }
    return {};
}

std::byte tensor_byte(std::uint32_t channel, std::uint32_t index, std::size_t at) {
    return filling(channel * 2 + 1, index, at);
}

Channel::Channel(std::uint32_t number, const Scenario& scenario) : number_{number} {
    RingOptions options;
    options.slots = scenario.slots;
    options.urgent_slots = scenario.urgent_slots;
    options.payload_bytes = kMessageBytesMax;
    options.epoch = kEpoch;
    options.checksums = scenario.checksums;
    ring_.resize(ring_bytes(options).value() / sizeof(Line));
    format_ring(bytes_of(ring_), options);
    if (scenario.pool_slots == 0) return;
    pool_.resize(pool_bytes(scenario.pool_slots, kTensorBytesMax).value() / sizeof(Line));
    format_pool(bytes_of(pool_), scenario.pool_slots, kTensorBytesMax);
}

RingHeader& Channel::header() {
    return *reinterpret_cast<RingHeader*>(ring_.data());
}

RingProducer Channel::old_producer() {
    header().epoch = kOldEpoch.value;
    RingProducer producer =
        RingProducer::attach_memory(bytes_of(ring_), kOldEpoch, kMessageRules).value();
    header().epoch = kEpoch.value;
    return producer;
}

RingProducer Channel::producer() {
    return RingProducer::attach_memory(bytes_of(ring_), kEpoch, kMessageRules).value();
}

RingConsumer Channel::consumer() {
    return RingConsumer::attach_memory(bytes_of(ring_), kEpoch, kMessageRules).value();
}

std::span<std::byte> Channel::pool_memory() {
    return bytes_of(pool_);
}

std::uint64_t Channel::published() const {
    // Relaxed: one thread.
    return reinterpret_cast<const RingHeader*>(ring_.data())->head.load(std::memory_order_relaxed);
}

std::uint32_t Channel::urgent_on_the_way() const {
    std::uint32_t count = 0;
    for (std::size_t i = taken_; i < put_.size(); ++i) count += put_[i] == Urgency::Urgent ? 1 : 0;
    return count;
}

}  // namespace paceline::test

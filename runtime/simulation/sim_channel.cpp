#include "runtime/simulation/sim_channel.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

SimChannel::SimChannel(const EdgeSpec& edge, End producer_end, End consumer_end, SimRoute way)
    : spec{edge}, from{producer_end}, to{consumer_end}, route{std::move(way)} {
    PACE_CHECK(spec.urgent_slots < spec.ring_slots, "a channel reserves all of its slots");
    if (spec.tensor_slots == 0) return;
    const Result<std::size_t> bytes = pool_bytes(spec.tensor_slots, spec.tensor_bytes);
    PACE_CHECK(bytes.ok(), "a simulated tensor pool of impossible size");
    memory_ = std::vector<Line>(bytes.value() / sizeof(Line) + 1);
    const std::span<std::byte> span{memory_.front().bytes, bytes.value()};
    format_pool(span, spec.tensor_slots, spec.tensor_bytes);
    producer.emplace(TensorProducer::attach_memory(span).value());
    consumer.emplace(TensorConsumer::attach_memory(span).value());
}

SimTime SimChannel::push(SimTime arrives, std::uint16_t kind, std::span<const std::byte> bytes) {
    last_arrival_ = std::max(route.sent(arrives), last_arrival_);
    frames_.push_back({last_arrival_, kind, {bytes.begin(), bytes.end()}});
    return route.arrival(std::max(last_arrival_, stalled_until_));
}

SimChannel::Frame SimChannel::pop() {
    Frame frame = std::move(frames_.front());
    frames_.pop_front();
    return frame;
}

bool SimChannel::tensors_free(std::uint32_t held) {
    if (!producer) return true;
    std::vector<PoolRef> taken;
    while (const auto slot = producer->acquire()) taken.push_back(*slot);
    for (const PoolRef slot : taken) producer->abandon(slot);
    return taken.size() + held >= spec.tensor_slots;
}

}  // namespace paceline

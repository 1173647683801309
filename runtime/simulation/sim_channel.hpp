// SimChannel: one directed edge between two incarnations, for as long as both live: a bounded
// queue with delays where the real world has a ring, and a real tensor pool in plain memory.
//
// A restart makes new channels (new memory); writes to an old one go to memory that is not read.
// Frames keep their order; an edge may stall, and then nothing arrives until the stall ends. Shared
// by its two ends, either of which may die first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "ipc/transport/kind_rule.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "runtime/loop/wiring.hpp"
#include "runtime/simulation/machines/sim_line.hpp"

namespace paceline {

class SimChannel {
public:
    struct Frame {
        SimTime arrives;
        std::uint16_t kind;
        std::vector<std::byte> bytes;
    };

    /// An incarnation: its number in the world, and its epoch.
    struct End {
        std::uint32_t serial;
        Epoch epoch;
    };

    SimChannel(const EdgeSpec& spec, End from, End to, SimRoute route = {});
    SimChannel(const SimChannel&) = delete;
    SimChannel& operator=(const SimChannel&) = delete;

    [[nodiscard]] bool has_room(Urgency urgency) const {
        const std::uint32_t reserved = urgency == Urgency::Urgent ? 0 : spec.urgent_slots;
        return frames_.size() + reserved < spec.ring_slots;
    }
    /// There must be room. Says when the frame arrives: in order, and not while the edge stalls or
    /// its machines are cut off. Between two machines it is `arrives` and the way.
    SimTime push(SimTime arrives, std::uint16_t kind, std::span<const std::byte> bytes);
    [[nodiscard]] bool has_frame(SimTime now) const { return !frames_.empty() && arrival() <= now; }
    /// When the first frame can be handled; nothing if there is none.
    [[nodiscard]] std::optional<SimTime> next_arrival() const {
        if (frames_.empty()) return std::nullopt;
        const SimTime arrives = arrival();
        return arrives == kSimNever ? std::nullopt : std::optional{arrives};
    }
    [[nodiscard]] Frame pop();
    void stall(SimTime until) { stalled_until_ = std::max(stalled_until_, until); }

    /// Whether every slot of the pool is free, but for at most `held` that the producer acquired.
    [[nodiscard]] bool tensors_free(std::uint32_t held);

    const EdgeSpec spec;
    const End from;
    const End to;
    const SimRoute route;
    bool room_wanted = false;  // the producer waits for a free frame
    bool read = true;          // the consumer has not closed it
    std::optional<TensorProducer> producer;
    std::optional<TensorConsumer> consumer;

private:
    struct alignas(kLineBytes) Line {
        std::byte bytes[kLineBytes];
    };
    [[nodiscard]] SimTime arrival() const {
        return route.arrival(std::max(frames_.front().arrives, stalled_until_));
    }

    std::deque<Frame> frames_;
    SimTime last_arrival_{0};
    SimTime stalled_until_{0};
    std::vector<Line> memory_;
};

}  // namespace paceline

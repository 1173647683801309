// LocalChannels: the channels between actors of one process. Bounded like a ring, but the messages
// lie in the inbox of the receiver (actor_host.hpp); a channel counts them and owns the tensor pool
// beside it.
//
// With Transport::Local the tensors lie in memory of the process's device, otherwise in the
// channel.
// Channels are never removed; a reference is valid as long as the table. Threads: the loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_link.hpp"
#include "runtime/loop/wiring.hpp"

namespace paceline {

struct LocalChannel {
    struct alignas(kLineBytes) Line {
        std::byte bytes[kLineBytes];
    };

    /// `slots`: memory of a device for the slots of the pool; nullptr: they are beside their
    /// states.
    LocalChannel(const EdgeSpec& s, std::shared_ptr<std::byte> slots);

    [[nodiscard]] bool has_room(Urgency urgency) const {
        const std::uint32_t reserved = urgency == Urgency::Urgent ? 0 : spec.urgent_slots;
        return waiting + reserved < spec.ring_slots;
    }
    /// Whether the sender waits for room, or for a slot of the pool, and there is some now; it no
    /// longer waits for that then.
    [[nodiscard]] bool take_room();

    EdgeSpec spec;
    std::uint32_t waiting = 0;  // messages sent and not yet handled
    bool wants_room = false;
    bool wants_slot = false;
    std::vector<Line> memory;
    std::shared_ptr<std::byte> device_slots;
    std::optional<TensorProducer> producer;
    std::optional<TensorConsumer> consumer;
};

class LocalChannels {
public:
    /// Whether a channel must have been connected before it is used.
    enum class Policy : std::uint8_t { Connected, OnDemand };

    explicit LocalChannels(Policy policy) : policy_{policy} {}

    /// Errors: OutOfMemory; Protocol for Local without a device, and for a transport between
    /// processes.
    [[nodiscard]] Status connect(const EdgeSpec& spec, TensorDevice* device);
    [[nodiscard]] LocalChannel* find(StageId from, StageId to) const;  // nullptr: not connected
    /// Connects it if the policy allows that.
    [[nodiscard]] LocalChannel& get(StageId from, StageId to);

    [[nodiscard]] std::size_t size() const { return channels_.size(); }
    [[nodiscard]] LocalChannel& operator[](std::size_t index) { return *channels_[index]; }

private:
    Policy policy_;
    std::vector<std::unique_ptr<LocalChannel>> channels_;
};

}  // namespace paceline

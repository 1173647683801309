#include "runtime/loop/local_channels.hpp"

#include <fmt/core.h>
#include <span>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

/// Memory for the slots of a channel whose tensors stay on the device of the process.
Result<std::shared_ptr<std::byte>> device_slots(const EdgeSpec& spec, TensorDevice* device) {
    const std::string who = fmt::format("transport {} of stage {} -> stage {}",
                                        name_of(spec.transport), spec.from.value, spec.to.value);
    if (spec.transport != Transport::Local) {
        return Error{Errc::Protocol, who + ": both stages are in one process"};
    }
    if (device == nullptr) return Error{Errc::Protocol, who + ": this process has no device"};
    Result<std::shared_ptr<std::byte>> memory =
        device->allocate(spec.tensor_slots * pool_stride(spec.tensor_bytes));
    if (!memory.ok()) return Error{memory.error().code, who + ": " + memory.error().what};
    return memory;
}

}  // namespace

LocalChannel::LocalChannel(const EdgeSpec& s, std::shared_ptr<std::byte> slots)
    : spec{s}, device_slots{std::move(slots)} {
    if (spec.tensor_slots == 0) return;
    const PoolData data = device_slots ? PoolData::Elsewhere : PoolData::Here;
    const Result<std::size_t> bytes = pool_bytes(spec.tensor_slots, spec.tensor_bytes, data);
    PACE_CHECK(bytes.ok(), "a local tensor pool of impossible size");
    memory = std::vector<Line>(bytes.value() / sizeof(Line));
    const std::span<std::byte> span{memory.front().bytes, bytes.value()};
    format_pool(span, spec.tensor_slots, spec.tensor_bytes, data);
    producer.emplace(TensorProducer::attach_memory(span).value());
    consumer.emplace(TensorConsumer::attach_memory(span).value());
    if (!device_slots) return;
    producer->use_memory(device_slots.get());
    consumer->use_memory(device_slots.get());
}

bool LocalChannel::take_room() {
    if (producer && producer->take_starved()) wants_slot = true;
    const bool room = wants_room && has_room(Urgency::Normal);
    const bool slot = wants_slot && producer->has_room();
    if (room) wants_room = false;
    if (slot) wants_slot = false;
    return room || slot;
}

Status LocalChannels::connect(const EdgeSpec& spec, TensorDevice* device) {
    PACE_CHECK(find(spec.from, spec.to) == nullptr, "a channel is connected twice");
    PACE_CHECK(spec.urgent_slots < spec.ring_slots, "a channel reserves all of its slots");
    std::shared_ptr<std::byte> slots;
    if (spec.transport != Transport::Host) {
        Result<std::shared_ptr<std::byte>> made = device_slots(spec, device);
        if (!made.ok()) return made.error();
        slots = std::move(made).value();
    }
    channels_.push_back(std::make_unique<LocalChannel>(spec, std::move(slots)));
    return {};
}

LocalChannel* LocalChannels::find(StageId from, StageId to) const {
    for (const auto& channel : channels_) {
        if (channel->spec.from == from && channel->spec.to == to) return channel.get();
    }
    return nullptr;
}

LocalChannel& LocalChannels::get(StageId from, StageId to) {
    if (LocalChannel* found = find(from, to)) return *found;
    PACE_CHECK(policy_ == Policy::OnDemand, "a message to an actor without a channel to it");
    EdgeSpec spec;
    spec.from = from;
    spec.to = to;
    const Status connected = connect(spec, nullptr);
    PACE_CHECK(connected.ok(), "a channel without tensors needs no device");
    return *channels_.back();
}

}  // namespace paceline

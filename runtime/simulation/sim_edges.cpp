#include "runtime/simulation/sim_edges.hpp"

#include <algorithm>

#include "runtime/simulation/sim_process.hpp"
#include "runtime/simulation/sim_stages.hpp"

namespace paceline {

SimEdges::Out* SimEdges::find_out(StageId from, StageId to) {
    for (Out& out : out_) {
        if (out.channel->spec.to == to && out.channel->spec.from == from) return &out;
    }
    return nullptr;
}

TensorConsumer* SimEdges::tensors_from(StageId self, StageId from) {
    for (const auto& channel : in_) {
        if (channel->spec.from == from && channel->spec.to == self && channel->consumer)
            return &*channel->consumer;
    }
    return nullptr;
}

Epoch SimEdges::epoch_of(StageId peer) const {
    for (const Out& out : out_) {
        if (out.channel->spec.to == peer) return out.channel->to.epoch;
    }
    for (const auto& channel : in_) {
        if (channel->spec.from == peer) return channel->from.epoch;
    }
    return Epoch{0};
}

bool SimEdges::are_with(std::uint32_t serial) const {
    const auto to_it = [serial](const Out& out) { return out.channel->to.serial == serial; };
    const auto from_it = [serial](const auto& in) { return in->from.serial == serial; };
    return std::any_of(out_.begin(), out_.end(), to_it) ||
           std::any_of(in_.begin(), in_.end(), from_it);
}

std::optional<SimTime> SimEdges::next_arrival() const {
    std::optional<SimTime> next;
    for (const auto& channel : in_) {
        const std::optional<SimTime> arrival = channel->next_arrival();
        if (arrival && (!next || *arrival < *next)) next = arrival;
    }
    return next;
}

void SimEdges::add(const SimChannels& channels) {
    const AllocationPause pause{self_.site};
    for (const auto& channel : channels) {
        if (self_.spec.hosts(channel->spec.from)) {
            absent_.erase(channel->spec.to);
            out_.push_back({channel});
        } else {
            absent_.erase(channel->spec.from);
            in_.push_back(channel);
        }
    }
}

bool SimEdges::lose(StageId peer) {
    const AllocationPause pause{self_.site};
    const auto goes = [peer](const std::shared_ptr<SimChannel>& channel) {
        return channel->spec.from == peer || channel->spec.to == peer;
    };
    for (const Out& out : out_) {
        if (goes(out.channel)) retired_.push_back(out.channel);
    }
    for (const auto& in : in_) {
        if (!goes(in)) continue;
        in->read = false;
        retired_.push_back(in);
    }
    std::erase_if(out_, [&](const Out& out) { return goes(out.channel); });
    std::erase_if(in_, goes);
    return absent_.insert(peer).second;
}

void SimEdges::clear() {
    out_.clear();
    in_.clear();
    retired_.clear();
}

bool SimEdges::ask_for_room() {
    bool found = false;
    for (Out& out : out_) {
        SimChannel& channel = *out.channel;
        if (out.wants_room) {
            channel.room_wanted = true;
            found = found || channel.has_room(Urgency::Normal);
        }
        if (out.wants_slot) {
            channel.producer->want_room();
            found = found || channel.producer->has_room();
        }
    }
    return found;
}

void SimEdges::tell_producers() {
    SimSite& site = self_.site;
    for (const auto& channel : in_) {
        const bool ring = channel->room_wanted && channel->has_room(Urgency::Normal);
        const bool pool = channel->consumer && channel->consumer->take_room_wanted();
        if (!ring && !pool) continue;
        channel->room_wanted = false;
        SimProcess& producer = site.stages.process(channel->from.serial);
        const SimTime told = self_.now() + site.timing.news(site.core.random);
        producer.wake(channel->route.is_relayed() ? channel->route.back(told) : told);
    }
}

}  // namespace paceline

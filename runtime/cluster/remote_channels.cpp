#include "runtime/cluster/remote_channels.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <string>
#include <sys/stat.h>

#include "ipc/transport/spsc_ring.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "runtime/cluster/node_memory.hpp"

namespace paceline {
namespace {

using remote::MemorySpec;

Error failed(const char* call) {
    return {Errc::System, std::string{call} + " of a channel failed: " + std::strerror(errno)};
}

Result<ShmRegion> map(std::span<const int> files, std::uint32_t index) {
    if (index >= files.size()) return Error{Errc::Protocol, "a file of a channel is missing"};
    return ShmRegion::attach(files[index], 1);
}

std::uint32_t number_of(std::vector<std::uint64_t>& ids, std::uint64_t id) {
    const auto known = std::find(ids.begin(), ids.end(), id);
    const auto index = static_cast<std::uint32_t>(known - ids.begin());
    if (known == ids.end()) ids.push_back(id);
    return index;
}

/// What the agent has to know of a ring to make its like.
Status describe_ring(const ShmRegion& ring, Epoch producer, MemorySpec& spec) {
    const Result<RingView> view = RingView::of(ring.bytes(), producer);
    if (!view.ok()) return view.error();
    spec.type = MemorySpec::Type::Ring;
    spec.slots = static_cast<std::uint32_t>(view.value().slot_count);
    spec.urgent_slots = static_cast<std::uint32_t>(view.value().urgent_slots);
    spec.slot_bytes = view.value().payload_bytes;
    spec.checksums = view.value().checksums;
    return {};
}

Status describe_pool(const ShmRegion& pool, MemorySpec& spec) {
    const Result<PoolView> view = PoolView::of(pool.bytes());
    if (!view.ok()) return view.error();
    spec.type = MemorySpec::Type::Pool;
    spec.slots = view.value().slot_count;
    spec.slot_bytes = view.value().slot_bytes;
    spec.elsewhere = view.value().data == nullptr;
    return {};
}

}  // namespace

Result<RemoteChannels::Plan> RemoteChannels::plan(remote::StageKey who,
                                                  control::Wire& wire,
                                                  std::span<const int> files,
                                                  const Home& home) {
    Plan plan;
    wire.bell_file = number_of(plan.ids, bell_of(plan, who));
    if (const Status added = add_edges(plan, who, wire.edges, files, home); !added.ok())
        return added.error();
    return plan;
}

Result<RemoteChannels::Plan> RemoteChannels::plan(remote::StageKey who,
                                                  control::Rewire& rewire,
                                                  std::span<const int> files,
                                                  const Home& home) {
    Plan plan;
    if (const Status added = add_edges(plan, who, rewire.edges, files, home); !added.ok())
        return added.error();
    return plan;
}

Status RemoteChannels::add_edges(Plan& plan,
                                 remote::StageKey who,
                                 std::vector<control::EdgeWire>& edges,
                                 std::span<const int> files,
                                 const Home& home) {
    for (control::EdgeWire& edge : edges) {
        if (edge.ring_file == control::kNoFile) continue;  // the peer is lost now
        if (const Status added = add_edge(plan, who, edge, files, home); !added.ok()) return added;
    }
    return {};
}

Status RemoteChannels::add_edge(Plan& plan,
                                remote::StageKey who,
                                control::EdgeWire& edge,
                                std::span<const int> files,
                                const Home& home) {
    const std::optional<remote::StageKey> peer = home(edge.peer);
    const bool relayed = !peer || peer->epoch != edge.peer_epoch;
    const Epoch producer = edge.outgoing ? who.epoch : edge.peer_epoch;
    Channel channel{.peer = edge.peer, .edge = relayed ? next_edge_++ : 0};
    if (relayed) {
        const Status added = add_relay(plan, channel.edge, edge, producer, files);
        if (!added.ok()) return added;
        plan.relayed.emplace_back(channel.edge, edge);
    }
    // Whichever of two stages of one machine comes first describes their channel.
    const auto describe = [&](std::uint32_t file, auto fill) -> Result<std::uint64_t> {
        std::pair<std::uint64_t, bool> id{next_id_, true};
        if (relayed) {
            ++next_id_;
        } else {
            const Result<std::pair<std::uint64_t, bool>> known = id_of(files[file]);
            if (!known.ok()) return known.error();
            id = known.value();
        }
        if (!id.second) return id.first;
        Result<ShmRegion> memory = map(files, file);
        if (!memory.ok()) return memory.error();
        MemorySpec spec;
        spec.id = id.first;
        spec.owner = {edge.outgoing ? edge.self : edge.peer, producer};
        if (const Status filled = fill(memory.value(), spec); !filled.ok()) return filled.error();
        if (relayed) {
            spec.edge = channel.edge;
            spec.relay =
                edge.outgoing ? MemorySpec::Relay::ConsumerAway : MemorySpec::Relay::ProducerAway;
            spec.partner_bell = bell_of(plan, who);
        }
        plan.make.memories.push_back(std::move(spec));
        return id.first;
    };
    if (edge.pool_file != control::kNoFile) {
        const Result<std::uint64_t> pool = describe(edge.pool_file, describe_pool);
        if (!pool.ok()) return pool.error();
        channel.pool = pool.value();
        edge.pool_file = number_of(plan.ids, channel.pool);
    }
    const Result<std::uint64_t> ring =
        describe(edge.ring_file, [producer](const ShmRegion& memory, MemorySpec& spec) {
            return describe_ring(memory, producer, spec);
        });
    if (!ring.ok()) return ring.error();
    channel.ring = ring.value();
    edge.ring_file = number_of(plan.ids, channel.ring);
    edge.bell_file = number_of(plan.ids, relayed ? kRelayBellId : bell_of(plan, *peer));
    channels_[who].push_back(channel);
    return {};
}

/// Takes the place of the stage that is away, at the channel's end on this machine.
Status RemoteChannels::add_relay(Plan& plan,
                                 std::uint32_t number,
                                 const control::EdgeWire& edge,
                                 Epoch producer,
                                 std::span<const int> files) {
    Result<ShmRegion> ring = map(files, edge.ring_file);
    if (!ring.ok()) return ring.error();
    Result<ShmRegion> bell_memory = map(files, edge.bell_file);
    if (!bell_memory.ok()) return bell_memory.error();
    Result<Doorbell> bell = Doorbell::attach(std::move(bell_memory).value());
    if (!bell.ok()) return bell.error();
    ChannelMemory memory{std::move(ring).value(), {}, std::move(bell).value()};
    if (edge.pool_file != control::kNoFile) {
        Result<ShmRegion> pool = map(files, edge.pool_file);
        if (!pool.ok()) return pool.error();
        memory.pool = std::move(pool).value();
    }
    if (edge.outgoing) {
        Result<RelayIn> in = RelayIn::attach(number, producer, std::move(memory));
        if (!in.ok()) return in.error();
        plan.ends.emplace_back(number, std::move(in).value());
        return {};
    }
    Result<RelayOut> out = RelayOut::attach(number, producer, std::move(memory));
    if (!out.ok()) return out.error();
    plan.ends.emplace_back(number, std::move(out).value());
    return {};
}

/// And whether it is new.
Result<std::pair<std::uint64_t, bool>> RemoteChannels::id_of(int file) {
    struct stat about {};
    if (::fstat(file, &about) != 0) return failed("fstat");
    const FileIdentity identity{about.st_dev, about.st_ino};
    const auto known = shared_.find(identity);
    if (known != shared_.end()) return std::pair{known->second.id, false};
    // Held, so that no other file gets its identity.
    OwnedFd held{::fcntl(file, F_DUPFD_CLOEXEC, 0)};
    if (!held) return failed("fcntl(F_DUPFD_CLOEXEC)");
    shared_.emplace(identity, Shared{std::move(held), next_id_});
    return std::pair{next_id_++, true};
}

std::uint64_t RemoteChannels::bell_of(Plan& plan, remote::StageKey stage) {
    const auto [bell, is_new] = bells_.try_emplace(stage, next_id_);
    if (is_new) {
        ++next_id_;
        MemorySpec spec;
        spec.id = bell->second;
        spec.owner = stage;
        plan.make.memories.push_back(std::move(spec));
    }
    return bell->second;
}

RemoteChannels::Dropped RemoteChannels::drop(remote::StageKey who, std::span<const StageId> peers) {
    Dropped dropped;
    std::vector<Channel>& channels = channels_[who];
    const auto goes = [&](const Channel& channel) {
        return peers.empty() || std::find(peers.begin(), peers.end(), channel.peer) != peers.end();
    };
    for (const Channel& channel : channels) {
        if (!goes(channel)) continue;
        dropped.memory.ids.push_back(channel.ring);
        if (channel.pool != 0) dropped.memory.ids.push_back(channel.pool);
        if (channel.edge != 0) dropped.edges.push_back(channel.edge);
        std::erase_if(shared_, [&](const auto& each) {
            return each.second.id == channel.ring || each.second.id == channel.pool;
        });
    }
    std::erase_if(channels, goes);
    if (!peers.empty()) return dropped;
    channels_.erase(who);
    const auto bell = bells_.find(who);
    if (bell == bells_.end()) return dropped;
    dropped.memory.ids.push_back(bell->second);
    bells_.erase(bell);
    return dropped;
}

}  // namespace paceline

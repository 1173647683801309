#include "runtime/cluster/node_memory.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "ipc/transport/spsc_ring.hpp"
#include "ipc/transport/tensor_pool.hpp"

namespace paceline {
namespace {

using remote::MemorySpec;

Error no_such(std::uint64_t id) {
    return {Errc::Protocol, fmt::format("memory {} was not made", id)};
}

}  // namespace

Status NodeMemory::open() {
    Result<ShmFile> bell = Doorbell::create("bell-relay");
    if (!bell.ok()) return bell.error();
    Result<ShmFile> board = CancelBoard::create();
    if (!board.ok()) return board.error();
    relay_bell_ = std::move(bell).value();
    board_ = std::move(board).value();
    return {};
}

Result<Doorbell> NodeMemory::relay_bell() const {
    Result<ShmRegion> region = ShmRegion::attach(relay_bell_.fd(), sizeof(DoorbellHeader));
    if (!region.ok()) return region.error();
    return Doorbell::attach(std::move(region).value());
}

Result<std::shared_ptr<CancelBoard>> NodeMemory::board() const {
    Result<ShmRegion> region = ShmRegion::attach(board_.fd(), 1);
    if (!region.ok()) return region.error();
    Result<CancelBoard> board = CancelBoard::attach(std::move(region).value());
    if (!board.ok()) return board.error();
    return std::make_shared<CancelBoard>(std::move(board).value());
}

Result<ShmFile> NodeMemory::create(const MemorySpec& spec) const {
    const std::string number = std::to_string(spec.id);
    switch (spec.type) {
        case MemorySpec::Type::Doorbell:
            return Doorbell::create("bell-" + number);
        case MemorySpec::Type::Ring: {
            RingOptions options;
            options.slots = spec.slots;
            options.urgent_slots = spec.urgent_slots;
            options.payload_bytes = static_cast<std::uint32_t>(
                std::min<std::uint64_t>(spec.slot_bytes, kFramePayloadMax + 1ULL));
            options.epoch = spec.owner.epoch;
            options.checksums = spec.checksums;
            return create_ring("ring-" + number, options);
        }
        case MemorySpec::Type::Pool:
            return create_pool("pool-" + number, spec.slots, spec.slot_bytes,
                               spec.elsewhere ? PoolData::Elsewhere : PoolData::Here);
        case MemorySpec::Type::Telemetry:
        case MemorySpec::Type::Board:
            break;
    }
    return Error{Errc::Protocol, "memory that the agent makes by itself"};
}

Status NodeMemory::make(const remote::MakeMemory& wanted, Relay& relay) {
    for (const MemorySpec& spec : wanted.memories) {
        if (spec.id < kFirstId || made_.contains(spec.id)) {
            return Error{Errc::Protocol, fmt::format("memory {} is made twice", spec.id)};
        }
        Result<ShmFile> file = create(spec);
        if (!file.ok()) return file.error();
        made_.emplace(spec.id, Made{std::move(file).value(), spec});
        if (spec.type != MemorySpec::Type::Doorbell) continue;
        Result<ShmRegion> region = map(spec.id);
        if (!region.ok()) return region.error();
        Result<Doorbell> bell = Doorbell::attach(std::move(region).value());
        if (!bell.ok()) return bell.error();
        bells_.insert_or_assign(spec.owner, std::move(bell).value());
    }
    // Its pool and its partner's doorbell may stand behind a ring.
    for (const MemorySpec& spec : wanted.memories) {
        const bool relayed =
            spec.type == MemorySpec::Type::Ring && spec.relay != MemorySpec::Relay::None;
        if (!relayed) continue;
        if (const Status added = add_relay(spec, relay); !added.ok()) return added;
    }
    return {};
}

Result<ShmRegion> NodeMemory::map(std::uint64_t id) const {
    const int fd = fd_of(id, -1);
    if (fd < 0) return no_such(id);
    return ShmRegion::attach(fd, 1);
}

Status NodeMemory::add_relay(const MemorySpec& ring, Relay& relay) {
    Result<ShmRegion> memory = map(ring.id);
    if (!memory.ok()) return memory.error();
    Result<ShmRegion> bell_memory = map(ring.partner_bell);
    if (!bell_memory.ok()) return bell_memory.error();
    Result<Doorbell> bell = Doorbell::attach(std::move(bell_memory).value());
    if (!bell.ok()) return bell.error();
    ChannelMemory channel{std::move(memory).value(), {}, std::move(bell).value()};
    for (const auto& [id, made] : made_) {
        if (made.spec.type != MemorySpec::Type::Pool || made.spec.edge != ring.edge ||
            made.spec.relay != ring.relay)
            continue;
        Result<ShmRegion> pool = map(id);
        if (!pool.ok()) return pool.error();
        channel.pool = std::move(pool).value();
    }
    if (ring.relay == MemorySpec::Relay::ConsumerAway) {
        Result<RelayOut> out = RelayOut::attach(ring.edge, ring.owner.epoch, std::move(channel));
        if (!out.ok()) return out.error();
        relay.add(ring.edge, std::move(out).value());
        return {};
    }
    Result<RelayIn> in = RelayIn::attach(ring.edge, ring.owner.epoch, std::move(channel));
    if (!in.ok()) return in.error();
    relay.add(ring.edge, std::move(in).value());
    return {};
}

void NodeMemory::drop(const remote::DropMemory& dropped, Relay& relay) {
    for (const std::uint64_t id : dropped.ids) {
        const auto found = made_.find(id);
        if (found == made_.end()) continue;
        const MemorySpec& spec = found->second.spec;
        if (spec.type == MemorySpec::Type::Ring && spec.relay != MemorySpec::Relay::None)
            relay.drop(spec.edge);
        if (spec.type == MemorySpec::Type::Doorbell) bells_.erase(spec.owner);
        made_.erase(found);
    }
}

int NodeMemory::fd_of(std::uint64_t id, int telemetry) const {
    if (id == kRelayBellId) return relay_bell_.fd();
    if (id == kBoardId) return board_.fd();
    if (id == kOwnTelemetryId) return telemetry;
    const auto found = made_.find(id);
    return found == made_.end() ? -1 : found->second.file.fd();
}

Result<std::vector<int>> NodeMemory::files(std::span<const std::uint64_t> ids,
                                           int telemetry) const {
    std::vector<int> files;
    for (const std::uint64_t id : ids) {
        files.push_back(fd_of(id, telemetry));
        if (files.back() < 0) return no_such(id);
    }
    return files;
}

std::optional<remote::StageKey> NodeMemory::stage_at(std::uint32_t edge) const {
    for (const auto& [id, made] : made_) {
        if (made.spec.type != MemorySpec::Type::Ring || made.spec.edge != edge ||
            made.spec.relay == MemorySpec::Relay::None)
            continue;
        const auto bell = made_.find(made.spec.partner_bell);
        if (bell != made_.end()) return bell->second.spec.owner;
    }
    return std::nullopt;
}

Doorbell* NodeMemory::bell_of(remote::StageKey stage) {
    const auto found = bells_.find(stage);
    return found == bells_.end() ? nullptr : &found->second;
}

}  // namespace paceline

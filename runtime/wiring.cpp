#include "runtime/wiring.hpp"

#include <fcntl.h>
#include <string>
#include <utility>

#include "ipc/kind_rules.hpp"

namespace paceline {
namespace {

std::string number(StageId id) {
    return std::to_string(id.value);
}

Error at_edge(const Error& error, const control::EdgeWire& edge) {
    return {error.code, "channel " + std::string{edge.outgoing ? "to" : "from"} + " stage " +
                            number(edge.peer) + ": " + error.what};
}

/// Maps file number `index` of those that came along.
Result<ShmRegion> map_file(std::span<const OwnedFd> files,
                           std::uint32_t index,
                           std::size_t bytes_min) {
    if (index >= files.size()) {
        return Error{Errc::Protocol, "file number " + std::to_string(index) + " of " +
                                         std::to_string(files.size()) + " does not exist"};
    }
    return ShmRegion::attach(files[index].get(), bytes_min);
}

Result<Doorbell> map_bell(std::span<const OwnedFd> files, std::uint32_t index) {
    Result<ShmRegion> region = map_file(files, index, sizeof(DoorbellHeader));
    if (!region.ok()) return region.error();
    return Doorbell::attach(std::move(region).value());
}

/// Attaches `End` (a ring's or a pool's end) to a file; `more` are its further arguments.
template <class End, class... More>
Result<End> map_end(std::span<const OwnedFd> files, std::uint32_t index, More... more) {
    Result<ShmRegion> region = map_file(files, index, 1);
    if (!region.ok()) return region.error();
    return End::attach(std::move(region).value(), more...);
}

template <class Pool>
Result<std::optional<Pool>> map_pool(std::span<const OwnedFd> files, std::uint32_t index) {
    if (index == control::kNoFile) return std::optional<Pool>{};
    Result<Pool> pool = map_end<Pool>(files, index);
    if (!pool.ok()) return pool.error();
    return std::optional<Pool>{std::move(pool).value()};
}

Status attach_edge(Wiring& wiring, const control::EdgeWire& edge, std::span<const OwnedFd> files) {
    Result<Doorbell> bell = map_bell(files, edge.bell_file);
    if (!bell.ok()) return at_edge(bell.error(), edge);
    if (edge.outgoing) {
        Result<RingProducer> ring = map_end<RingProducer>(files, edge.ring_file, wiring.epoch);
        if (!ring.ok()) return at_edge(ring.error(), edge);
        Result<std::optional<TensorProducer>> pool =
            map_pool<TensorProducer>(files, edge.pool_file);
        if (!pool.ok()) return at_edge(pool.error(), edge);
        wiring.out.push_back(
            {edge.peer, std::move(ring).value(), std::move(pool).value(), std::move(bell).value()});
        return {};
    }
    Result<RingConsumer> ring = map_end<RingConsumer>(files, edge.ring_file, edge.peer_epoch);
    if (!ring.ok()) return at_edge(ring.error(), edge);
    Result<std::optional<TensorConsumer>> pool = map_pool<TensorConsumer>(files, edge.pool_file);
    if (!pool.ok()) return at_edge(pool.error(), edge);
    wiring.in.push_back(
        {edge.peer, std::move(ring).value(), std::move(pool).value(), std::move(bell).value()});
    return {};
}

}  // namespace

Result<Wiring> attach_wiring(StageId self,
                             Epoch epoch,
                             const control::Wire& wire,
                             std::span<const OwnedFd> files) {
    Result<Doorbell> bell = map_bell(files, wire.bell_file);
    if (!bell.ok()) return bell.error();
    Wiring wiring{self, epoch, wire.spin_micros, std::move(bell).value(), {}, {}};
    for (const control::EdgeWire& edge : wire.edges) {
        const Status attached = attach_edge(wiring, edge, files);
        if (!attached.ok()) return attached.error();
    }
    return wiring;
}

Result<WiringPlan> WiringPlan::create(std::span<const StageSpec> stages,
                                      std::span<const EdgeSpec> edges) {
    WiringPlan plan;
    for (const StageSpec& stage : stages) {
        Result<ShmFile> bell = Doorbell::create("bell-" + number(stage.id));
        if (!bell.ok()) return bell.error();
        plan.stages_.push_back({stage, std::move(bell).value()});
    }
    for (const EdgeSpec& edge : edges) {
        const std::string name = number(edge.from) + "-" + number(edge.to);
        const Stage* from = plan.find(edge.from);
        if (from == nullptr || plan.find(edge.to) == nullptr || edge.from == edge.to) {
            return Error{Errc::BadArgument,
                         "channel " + name + " joins a stage that does not exist"};
        }
        for (const Edge& other : plan.edges_) {
            if (other.spec.from == edge.from && other.spec.to == edge.to) {
                return Error{Errc::BadArgument, "channel " + name + " is given twice"};
            }
        }
        RingOptions options;
        options.slots = edge.ring_slots;
        options.urgent_slots = edge.urgent_slots;
        options.payload_bytes = bytes_max(kHotKinds);
        options.epoch = from->spec.epoch;
        Result<ShmFile> ring = create_ring("ring-" + name, options);
        if (!ring.ok()) return ring.error();
        Result<ShmFile> pool{ShmFile{}};
        if (edge.tensor_slots > 0) {
            pool = create_pool("pool-" + name, edge.tensor_slots, edge.tensor_bytes);
            if (!pool.ok()) return pool.error();
        }
        plan.edges_.push_back({edge, std::move(ring).value(), std::move(pool).value()});
    }
    return plan;
}

const WiringPlan::Stage* WiringPlan::find(StageId id) const {
    for (const Stage& stage : stages_) {
        if (stage.spec.id == id) return &stage;
    }
    return nullptr;
}

WiringPlan::Letter WiringPlan::letter_for(StageId id) const {
    const Stage* stage = find(id);
    PACE_CHECK(stage != nullptr, "a letter for a stage that is not in the plan");
    Letter letter;
    const auto enclose = [&letter](const ShmFile& file) -> std::uint32_t {
        if (!file) return control::kNoFile;
        letter.files.push_back(file.fd());
        return static_cast<std::uint32_t>(letter.files.size() - 1);
    };
    letter.wire.bell_file = enclose(stage->bell);
    letter.wire.spin_micros = stage->spec.spin_micros;
    for (const Edge& edge : edges_) {
        if (edge.spec.from != id && edge.spec.to != id) continue;
        const bool outgoing = edge.spec.from == id;
        const Stage* peer = find(outgoing ? edge.spec.to : edge.spec.from);
        control::EdgeWire wire;
        wire.peer = peer->spec.id;
        wire.peer_epoch = peer->spec.epoch;
        wire.outgoing = outgoing;
        wire.ring_file = enclose(edge.ring);
        wire.pool_file = enclose(edge.pool);
        wire.bell_file = enclose(peer->bell);
        letter.wire.edges.push_back(wire);
    }
    return letter;
}

Result<Doorbell> WiringPlan::bell_of(StageId id) const {
    const Stage* stage = find(id);
    PACE_CHECK(stage != nullptr, "the doorbell of a stage that is not in the plan");
    Result<ShmRegion> region = ShmRegion::attach(stage->bell.fd(), sizeof(DoorbellHeader));
    if (!region.ok()) return region.error();
    return Doorbell::attach(std::move(region).value());
}

Result<Wiring> WiringPlan::attach(StageId id) const {
    const Letter letter = letter_for(id);
    std::vector<OwnedFd> files;
    for (const int fd : letter.files) files.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    return attach_wiring(id, find(id)->spec.epoch, letter.wire, files);
}

}  // namespace paceline

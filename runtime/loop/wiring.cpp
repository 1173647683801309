#include "runtime/loop/wiring.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <span>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/wire/data_kinds.hpp"

namespace paceline {
namespace {

/// A span: map_end() takes its arguments by value, and an array's copy would end with it.
constexpr std::span<const KindRule> kRules{kDataKinds};

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
        return Error{Errc::Protocol,
                     fmt::format("file number {} of {} does not exist", index, files.size())};
    }
    return ShmRegion::attach(files[index].get(), bytes_min);
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

/// The transport in the message and the kind of pool must agree.
template <class Pool>
Status check_transport(const control::EdgeWire& edge, const std::optional<Pool>& pool) {
    if (edge.transport == Transport::Local) {
        return Error{Errc::Protocol, "transport local between two processes"};
    }
    const bool elsewhere = pool && pool->is_elsewhere();
    if (elsewhere == has_link(edge.transport)) return {};
    return Error{Errc::Protocol,
                 fmt::format("transport {} with a tensor pool {}", name_of(edge.transport),
                             elsewhere ? "without slots" : "of the host or none")};
}

Status attach_edge(AttachedEdges& attached,
                   Epoch own_epoch,
                   const control::EdgeWire& edge,
                   std::span<const OwnedFd> files) {
    Result<Doorbell> bell = attach_bell(files, edge.bell_file);
    if (!bell.ok()) return at_edge(bell.error(), edge);
    if (edge.outgoing) {
        Result<RingProducer> ring = map_end<RingProducer>(files, edge.ring_file, own_epoch, kRules);
        if (!ring.ok()) return at_edge(ring.error(), edge);
        Result<std::optional<TensorProducer>> pool =
            map_pool<TensorProducer>(files, edge.pool_file);
        if (!pool.ok()) return at_edge(pool.error(), edge);
        if (const Status fits = check_transport(edge, pool.value()); !fits.ok()) {
            return at_edge(fits.error(), edge);
        }
        attached.out.push_back({edge.self, edge.peer, edge.peer_epoch, std::move(ring).value(),
                                std::move(pool).value(), std::move(bell).value(), edge.transport,
                                edge.name});
        return {};
    }
    Result<RingConsumer> ring =
        map_end<RingConsumer>(files, edge.ring_file, edge.peer_epoch, kRules);
    if (!ring.ok()) return at_edge(ring.error(), edge);
    Result<std::optional<TensorConsumer>> pool = map_pool<TensorConsumer>(files, edge.pool_file);
    if (!pool.ok()) return at_edge(pool.error(), edge);
    if (const Status fits = check_transport(edge, pool.value()); !fits.ok()) {
        return at_edge(fits.error(), edge);
    }
    attached.in.push_back({edge.peer, edge.self, edge.peer_epoch, std::move(ring).value(),
                           std::move(pool).value(), std::move(bell).value(), edge.transport,
                           edge.name});
    return {};
}

/// Of an edge between two processes.
Status check_transport(const EdgeSpec& edge, const std::string& name) {
    if (edge.transport == Transport::Host) return {};
    const std::string what = "channel " + name + ": transport " + name_of(edge.transport);
    if (!has_link(edge.transport)) {
        return Error{Errc::BadArgument, what + " joins two processes"};
    }
    if (edge.tensor_slots == 0) {
        return Error{Errc::BadArgument, what + " without tensors"};
    }
    if (edge.name.size() > control::kNameBytesMax) {
        return Error{Errc::BadArgument,
                     fmt::format("{}: a name of more than {} bytes", what, control::kNameBytesMax)};
    }
    return {};
}

Result<std::vector<OwnedFd>> duplicate(std::span<const int> files) {
    std::vector<OwnedFd> copies;
    for (const int fd : files) {
        copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
        if (copies.back()) continue;
        return Error{Errc::System, std::string{"fcntl(F_DUPFD_CLOEXEC) of a channel failed: "} +
                                       std::strerror(errno)};
    }
    return copies;
}

}  // namespace

Result<Doorbell> attach_bell(std::span<const OwnedFd> files, std::uint32_t index) {
    Result<ShmRegion> region = map_file(files, index, sizeof(DoorbellHeader));
    if (!region.ok()) return region.error();
    return Doorbell::attach(std::move(region).value());
}

Result<AttachedEdges> attach_edges(Epoch own_epoch,
                                   std::span<const control::EdgeWire> edges,
                                   std::span<const OwnedFd> files) {
    AttachedEdges attached;
    for (const control::EdgeWire& edge : edges) {
        if (edge.ring_file == control::kNoFile) {
            attached.absent.push_back(edge.peer);
            continue;
        }
        const Status status = attach_edge(attached, own_epoch, edge, files);
        if (!status.ok()) return status.error();
    }
    return attached;
}

// ---- the plan ----

Result<WiringPlan> WiringPlan::create(std::vector<ProcessSpec> processes,
                                      std::vector<EdgeSpec> edges,
                                      Checksums checksums) {
    WiringPlan plan;
    plan.checksums_ = checksums;
    for (ProcessSpec& process : processes) {
        for (const StageId actor : process.actors) {
            if (plan.home(actor) == nullptr) continue;
            return Error{Errc::BadArgument, "actor " + number(actor) + " lives in two processes"};
        }
        plan.processes_.push_back({std::move(process), Epoch{}, false, {}});
    }
    for (const EdgeSpec& edge : edges) {
        const std::string name = number(edge.from) + "-" + number(edge.to);
        const Process* from = plan.home(edge.from);
        const Process* to = plan.home(edge.to);
        if (from == nullptr || to == nullptr || edge.from == edge.to) {
            return Error{Errc::BadArgument,
                         "channel " + name + " joins a stage that does not exist"};
        }
        for (const Edge& other : plan.edges_) {
            if (other.spec.from == edge.from && other.spec.to == edge.to) {
                return Error{Errc::BadArgument, "channel " + name + " is given twice"};
            }
        }
        if (from == to) continue;  // the host passes these on by itself
        if (const Status fits = check_transport(edge, name); !fits.ok()) return fits.error();
        for (const StageId end : {from->spec.id, to->spec.id}) {
            const auto has_end = [end](const Edge& other) {
                return other.from_process == end || other.to_process == end;
            };
            if (std::count_if(plan.edges_.begin(), plan.edges_.end(), has_end) <
                static_cast<std::ptrdiff_t>(control::kEdgesMax)) {
                continue;
            }
            return Error{Errc::BadArgument, fmt::format("stage {} has more than {} channels",
                                                        number(end), control::kEdgesMax)};
        }
        plan.edges_.push_back({edge, from->spec.id, to->spec.id, {}, {}});
    }
    return plan;
}

const WiringPlan::Process& WiringPlan::find(StageId id) const {
    for (const Process& process : processes_) {
        if (process.spec.id == id) return process;
    }
    PACE_CHECK(false, "a process that is not in the plan");
    return processes_.front();
}

WiringPlan::Process& WiringPlan::find(StageId id) {
    return const_cast<Process&>(std::as_const(*this).find(id));
}

const WiringPlan::Process* WiringPlan::home(StageId actor) const {
    for (const Process& process : processes_) {
        const std::vector<StageId>& actors = process.spec.actors;
        if (std::find(actors.begin(), actors.end(), actor) != actors.end()) return &process;
    }
    return nullptr;
}

StageId WiringPlan::home_of(StageId actor) const {
    const Process* process = home(actor);
    PACE_CHECK(process != nullptr, "an actor that lives nowhere");
    return process->spec.id;
}

const ProcessSpec& WiringPlan::process(StageId id) const {
    return find(id).spec;
}

Status WiringPlan::make_channel(Edge& edge) {
    const std::string name = number(edge.spec.from) + "-" + number(edge.spec.to);
    RingOptions options;
    options.slots = edge.spec.ring_slots;
    options.urgent_slots = edge.spec.urgent_slots;
    options.payload_bytes = edge.spec.frame_bytes;
    options.epoch = find(edge.from_process).epoch;
    options.checksums = checksums_ == Checksums::Payloads;
    Result<ShmFile> ring = create_ring("ring-" + name, options);
    if (!ring.ok()) return ring.error();
    edge.ring = std::move(ring).value();
    edge.offered = false;
    if (edge.spec.tensor_slots == 0) return {};
    const PoolData data = has_link(edge.spec.transport) ? PoolData::Elsewhere : PoolData::Here;
    Result<ShmFile> pool =
        create_pool("pool-" + name, edge.spec.tensor_slots, edge.spec.tensor_bytes, data);
    if (!pool.ok()) return pool.error();
    edge.pool = std::move(pool).value();
    return {};
}

Status WiringPlan::wire(StageId id, Epoch epoch) {
    unwire(id);
    Process& process = find(id);
    process.epoch = epoch;
    const bool away = process.spec.node != 0;
    if (!away || !relay_bell_) {
        Result<ShmFile> bell = Doorbell::create(away ? "bell-relay" : "bell-" + number(id));
        if (!bell.ok()) return bell.error();
        (away ? relay_bell_ : process.bell) = std::move(bell).value();
    }
    process.wired = true;
    for (Edge& edge : edges_) {
        if (edge.from_process != id && edge.to_process != id) continue;
        const StageId peer = edge.from_process == id ? edge.to_process : edge.from_process;
        if (!find(peer).wired) continue;
        if (const Status made = make_channel(edge); !made.ok()) return made;
    }
    return {};
}

void WiringPlan::unwire(StageId id) {
    Process& process = find(id);
    process.wired = false;
    process.bell = {};
    for (Edge& edge : edges_) {
        if (edge.from_process != id && edge.to_process != id) continue;
        edge.ring = {};
        edge.pool = {};
    }
}

void WiringPlan::collect(StageId process,
                         std::optional<StageId> peer,
                         std::vector<control::EdgeWire>& edges,
                         std::vector<int>& files) const {
    // Each file once: a peer's doorbell belongs to all channels with it.
    const auto enclose = [&files](const ShmFile& file) -> std::uint32_t {
        if (!file) return control::kNoFile;
        const auto known = std::find(files.begin(), files.end(), file.fd());
        const auto index = static_cast<std::uint32_t>(known - files.begin());
        if (known == files.end()) files.push_back(file.fd());
        return index;
    };
    for (const Edge& edge : edges_) {
        const bool outgoing = edge.from_process == process;
        if (!outgoing && edge.to_process != process) continue;
        const Process& other = find(outgoing ? edge.to_process : edge.from_process);
        if (peer && other.spec.id != *peer) continue;
        control::EdgeWire wire;
        wire.self = outgoing ? edge.spec.from : edge.spec.to;
        wire.peer = outgoing ? edge.spec.to : edge.spec.from;
        wire.peer_epoch = other.epoch;
        wire.outgoing = outgoing;
        wire.ring_file = enclose(edge.ring);
        wire.pool_file = enclose(edge.pool);
        wire.bell_file = edge.ring ? enclose(bell(other)) : control::kNoFile;
        wire.transport = edge.spec.transport;
        if (has_link(edge.spec.transport)) wire.name = edge.spec.name;
        edges.push_back(wire);
    }
}

WiringPlan::WireMessage<control::Wire> WiringPlan::wire_message_for(StageId id) const {
    const Process& process = find(id);
    PACE_CHECK(process.wired, "a message for a process that is not wired");
    WireMessage<control::Wire> outgoing;
    outgoing.files.push_back(bell(process).fd());
    outgoing.message.bell_file = 0;
    outgoing.message.spin_micros = process.spec.spin_micros;
    collect(id, {}, outgoing.message.edges, outgoing.files);
    return outgoing;
}

WiringPlan::WireMessage<control::Rewire> WiringPlan::wire_message_about(StageId peer,
                                                                        StageId survivor) const {
    const Process& process = find(peer);
    WireMessage<control::Rewire> outgoing;
    outgoing.message.peers = process.spec.actors;
    outgoing.message.peer_epoch = process.epoch;
    collect(survivor, peer, outgoing.message.edges, outgoing.files);
    return outgoing;
}

WiringPlan::Offer WiringPlan::judge(const control::EdgeOffer& offer, StageId sender) {
    for (Edge& edge : edges_) {
        if (edge.spec.from != offer.from || edge.spec.to != offer.to) continue;
        if (edge.to_process != sender || !has_link(edge.spec.transport)) return Offer::Wrong;
        // A channel is of these two incarnations: it goes with the first of them.
        const bool current = edge.ring && find(edge.from_process).epoch == offer.from_epoch &&
                             find(edge.to_process).epoch == offer.to_epoch;
        if (!current || std::exchange(edge.offered, true)) return Offer::Stale;
        return Offer::Wanted;
    }
    return Offer::Wrong;
}

Result<Doorbell> WiringPlan::bell_of(StageId id) const {
    Result<ShmRegion> region = ShmRegion::attach(bell(find(id)).fd(), sizeof(DoorbellHeader));
    if (!region.ok()) return region.error();
    return Doorbell::attach(std::move(region).value());
}

Result<AttachedEdges> WiringPlan::attach(StageId id, std::optional<StageId> peer) const {
    std::vector<control::EdgeWire> edges;
    std::vector<int> files;
    collect(id, peer, edges, files);
    const Result<std::vector<OwnedFd>> copies = duplicate(files);
    if (!copies.ok()) return copies.error();
    return attach_edges(find(id).epoch, edges, copies.value());
}

}  // namespace paceline

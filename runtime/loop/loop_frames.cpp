#include "runtime/loop/loop_frames.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "ipc/base/check.hpp"
#include "runtime/loop/edge_links.hpp"

namespace paceline {
namespace {

bool has_wanted_room(StageEdges::Out& out) {
    return (out.wants_room && out.edge.ring.has_room(Urgency::Normal)) ||
           (out.wants_slot && out.edge.pool->has_room());
}

}  // namespace

LoopFrames::LoopFrames(StageEdges& edges,
                       LoopTelemetry& telemetry,
                       ActorHost& host,
                       LoopControl& control,
                       std::uint32_t burst)
    : edges_{edges}, telemetry_{telemetry}, host_{host}, control_{control}, burst_{burst} {}

// ---- out ----

Push LoopFrames::send(StageId from,
                      StageId to,
                      std::uint16_t kind,
                      std::span<const std::byte> bytes) {
    Out* out = edges_.find_out(from, to);
    if (out == nullptr) {
        PACE_CHECK(edges_.is_absent(to), "a message to a stage without a channel to it");
        telemetry_.count(Counter::FramesStale);
        return Push::Ok;
    }
    if (out->edge.ring.try_push(kind, bytes) == Push::Full) {
        out->wants_room = true;
        telemetry_.count(Counter::ChannelFull);
        telemetry_.trace({.kind = TraceKind::Full, .peer = to, .detail = kind, .self = from});
        return Push::Full;
    }
    out->has_news = true;
    EdgeLinks::announce(*out, kind, bytes);
    telemetry_.count(Counter::FramesOut);
    telemetry_.trace({.kind = TraceKind::Send,
                      .peer = to,
                      .detail = kind,
                      .self = from,
                      .peer_epoch = out->edge.peer_epoch});
    return Push::Ok;
}

bool LoopFrames::call_rooms() {
    bool any = false;
    for (const auto& each : edges_.out()) {
        if (host_.ended()) break;
        Out& out = *each;
        if (out.edge.pool && out.edge.pool->take_starved()) {
            out.wants_slot = true;
            telemetry_.count(Counter::ChannelFull);
        }
        if (!out.wants_room && !out.wants_slot) continue;
        if (!has_wanted_room(out)) {
            look_for_fault(out);
            continue;
        }
        out.wants_room = out.wants_room && !out.edge.ring.has_room(Urgency::Normal);
        out.wants_slot = out.wants_slot && !out.edge.pool->has_room();
        host_.room(out.edge.from, out.edge.to);
        any = true;
    }
    return any;
}

/// A producer waits for room here. If the consumer has broken the layout there will never be any.
void LoopFrames::look_for_fault(const Out& out) {
    Status fault = out.edge.ring.fault();
    if (fault.ok() && out.edge.pool) fault = out.edge.pool->fault();
    if (fault.ok()) return;
    edges_.faults().add("to", out.edge.to, fault.error());
}

void LoopFrames::want_rooms() {
    for (const auto& out : edges_.out()) {
        if (out->wants_room) out->edge.ring.want_room();
        if (out->wants_slot) out->edge.pool->want_room();
    }
}

bool LoopFrames::can_go_on() {
    return EdgeLinks::has_input(edges_) ||
           std::any_of(edges_.out().begin(), edges_.out().end(),
                       [](const auto& out) { return has_wanted_room(*out); });
}

// ---- in ----

bool LoopFrames::receive() {
    bool any = false;
    // By index: a control message that comes before a frame may close or add edges.
    const auto& in = edges_.in();
    for (std::size_t i = 0; i < in.size() && !host_.ended(); ++i) any = drain(*in[i]) || any;
    return any;
}

bool LoopFrames::drain(In& in) {
    InEdge& edge = in.edge;
    const std::span<std::byte> buffer = edges_.frame_buffer();
    bool any = release_held(in);
    for (std::uint32_t i = 0; i < burst_ && !in.held && !host_.ended(); ++i) {
        if (edges_.faults().has(edge.from)) break;  // what follows is of the same sender
        // The control message that caused a frame, if there is one, was announced before the frame
        // was published: it is seen now, and handled first. It may close this very edge.
        if (edge.ring.has_frame() && control_.has_news()) {
            control_.poll();
            return true;
        }
        const std::uint64_t stale = edge.ring.stale_frames();
        const Popped popped = edge.ring.try_pop(buffer);
        if (edge.ring.stale_frames() != stale) {
            telemetry_.count(Counter::FramesStale, edge.ring.stale_frames() - stale);
        }
        if (popped.outcome == Pop::Empty) break;
        if (popped.outcome == Pop::Corrupt) {
            edges_.faults().add("from", edge.from, edge.ring.fault().error());
            break;
        }
        telemetry_.trace({.kind = TraceKind::Receive,
                          .peer = edge.from,
                          .detail = popped.kind,
                          .self = edge.to,
                          .peer_epoch = edge.peer_epoch});
        any = true;
        if (EdgeLinks::hold(in, popped)) {
            release_held(in);
        } else {
            handle(in, popped.kind, popped.payload);
        }
    }
    // Also when all that was taken were frames of an old epoch.
    if (edge.ring.take_room_wanted()) edge.bell.ring();
    if (any) edges_.ring_bells();
    return any;
}

/// Hands the held frame to its actor once its tensor is there.
bool LoopFrames::release_held(In& in) {
    if (!in.held || host_.ended() || edges_.faults().has(in.edge.from)) return false;
    const Result<bool> arrived = EdgeLinks::has_arrived(in);
    if (!arrived.ok()) {
        edges_.faults().add("from", in.edge.from, arrived.error());
        return false;
    }
    if (!arrived.value()) return false;
    const StageEdges::HeldFrame frame = std::move(*std::exchange(in.held, std::nullopt));
    handle(in, frame.kind, frame.payload);
    return true;
}

void LoopFrames::handle(const In& in, std::uint16_t kind, std::span<const std::byte> payload) {
    host_.handle(in.edge.to, in.edge.from, kind, payload);
    telemetry_.count(Counter::FramesIn);
}

}  // namespace paceline

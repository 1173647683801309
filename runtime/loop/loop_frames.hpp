// LoopFrames: the data side of a loop: frames out and in over the open channels of its process, and
// room that its actors wait for.
//
// - Frames of one channel are handled in order. One whose tensor has not arrived is held
//   (edge_links.hpp), and with it those behind it; other channels go on.
// - Before each frame the control messages that were announced are handled (loop_control.hpp).
// - A channel that its peer broke is added to StageEdges::faults; no further frame of that peer is
//   read.
// - An actor that met a full ring or pool is told of room once there is some.
// Borrows all that it is given. Threads: the loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/transport/push.hpp"
#include "runtime/loop/actor_host.hpp"
#include "runtime/loop/loop_control.hpp"
#include "runtime/loop/loop_telemetry.hpp"
#include "runtime/loop/stage_edges.hpp"

namespace paceline {

class LoopFrames {
public:
    /// `burst`: frames taken from one ring before the others are read.
    LoopFrames(StageEdges& edges,
               LoopTelemetry& telemetry,
               ActorHost& host,
               LoopControl& control,
               std::uint32_t burst);

    /// To a peer that is absent: dropped, and Ok. Precondition: otherwise there is a channel.
    [[nodiscard]] Push send(StageId from,
                            StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes);

    // Steps of an iteration. Each says whether it dispatched anything.
    bool receive();     // up to a burst of frames of each channel, in the order of the wiring
    bool call_rooms();  // on_room of those whose channel has room again

    // Around a sleep.
    void want_rooms();  // peers ring when there is room for what waits
    /// receive() or call_rooms() would dispatch something.
    [[nodiscard]] bool can_go_on();

private:
    using Out = StageEdges::Out;
    using In = StageEdges::In;
    bool drain(In& in);
    bool release_held(In& in);
    void handle(const In& in, std::uint16_t kind, std::span<const std::byte> payload);
    void look_for_fault(const Out& out);

    StageEdges& edges_;
    LoopTelemetry& telemetry_;
    ActorHost& host_;
    LoopControl& control_;
    std::uint32_t burst_;
};

}  // namespace paceline

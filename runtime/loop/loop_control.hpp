// LoopControl: the control side of a loop: when it reads its control port, and what follows from
// the messages, losses, channels and offers that come from there.
//
// A control message is announced at the doorbell after it was put into the socket, and before a
// frame that it caused is published (doorbell.hpp). So whoever is about to handle a frame checks
// has_news() first. Where no bell rings, for a conductor that is gone, is_due() says when to look.
//
// A peer that is lost: its channels are retired (stage_edges.hpp) and every actor is told, once.
// One that broke a channel (StageEdges::faults) is lost the same way and reported to the port.
// Every error of port or links ends the loop (ActorHost::end_on_error).
// Borrows all that it is given. Threads: the loop's.
#pragma once

#include <cstdint>

#include "ipc/transport/doorbell.hpp"
#include "runtime/loop/actor_host.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/loop/edge_links.hpp"
#include "runtime/loop/loop_telemetry.hpp"
#include "runtime/loop/stage_edges.hpp"

namespace paceline {

class LoopControl {
public:
    /// `bell`: this process's. `self`: the actor that gets messages for the process as a whole.
    LoopControl(ControlPort& port,
                const Doorbell& bell,
                StageId self,
                Micros poll_interval,
                StageEdges& edges,
                EdgeLinks& links,
                LoopTelemetry& telemetry,
                ActorHost& host);

    /// Something was announced since the last poll().
    [[nodiscard]] bool has_news() const { return bell_.announced() != announced_seen_; }
    [[nodiscard]] bool is_due(Micros now) const { return now - polled_at_ >= poll_interval_; }
    /// Handles everything that has arrived; whether there was anything. May close and add edges.
    bool poll();

    /// Opens and offers the links of new channels.
    void open_links();
    /// Treats peers with a fault as lost, and reports them. Only while no handler runs.
    bool lose_faulty();

private:
    void take(PortEvent event);
    void lose(StageId peer);

    ControlPort& port_;
    const Doorbell& bell_;
    StageId self_;
    Micros poll_interval_;
    StageEdges& edges_;
    EdgeLinks& links_;
    LoopTelemetry& telemetry_;
    ActorHost& host_;
    std::uint32_t announced_seen_ = 0;
    Micros polled_at_{0};
};

}  // namespace paceline

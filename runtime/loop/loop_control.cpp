#include "runtime/loop/loop_control.hpp"

#include <utility>
#include <variant>

#include "ipc/base/faults.hpp"

namespace paceline {

LoopControl::LoopControl(ControlPort& port,
                         const Doorbell& bell,
                         StageId self,
                         Micros poll_interval,
                         StageEdges& edges,
                         EdgeLinks& links,
                         LoopTelemetry& telemetry,
                         ActorHost& host)
    : port_{port},
      bell_{bell},
      self_{self},
      poll_interval_{poll_interval},
      edges_{edges},
      links_{links},
      telemetry_{telemetry},
      host_{host} {}

bool LoopControl::poll() {
    polled_at_ = steady_now();
    announced_seen_ = bell_.announced();
    bool any = false;
    host_.end_on_error(port_.poll([this, &any](PortEvent event) {
        any = true;
        take(std::move(event));
    }));
    return any;
}

void LoopControl::open_links() {
    host_.end_on_error(links_.attach(edges_, port_, steady_now()));
}

void LoopControl::take(PortEvent event) {
    if (auto* mail = std::get_if<PortMail>(&event)) {
        const bool ends = std::holds_alternative<control::Shutdown>(mail->message);
        if (ends && mail->envelope.from == kConductor) {
            fault_point(FaultPoint::Draining);
            return host_.stop();
        }
        StageId to = mail->envelope.to;
        if (!host_.hosts(to)) to = self_;
        host_.control(to, mail->envelope.from, mail->message);
    } else if (auto* lost = std::get_if<PeersLost>(&event)) {
        for (const StageId peer : lost->peers) lose(peer);
    } else if (auto* wired = std::get_if<PeersWired>(&event)) {
        fault_point(FaultPoint::PeerWired);
        // First retire the channels of the earlier incarnation, and report its loss if that has not
        // been done.
        for (const StageId peer : wired->peers) lose(peer);
        edges_.add(std::move(wired->out), std::move(wired->in));
        host_.end_on_error(port_.wired(wired->peers.front(), wired->epoch));
        open_links();
    } else if (auto* joined = std::get_if<PeersJoined>(&event)) {
        for (const StageId peer : joined->peers) {
            telemetry_.trace({.kind = TraceKind::PeerJoined, .peer = peer});
            host_.peer(peer, PeerChange::Joined);
        }
    } else if (auto* offered = std::get_if<LinkOffered>(&event)) {
        host_.end_on_error(links_.take(edges_, std::move(*offered)));
    }
}

void LoopControl::lose(StageId peer) {
    if (!edges_.lose(peer, host_.jobs().submitted())) return;
    telemetry_.trace({.kind = TraceKind::PeerLost, .peer = peer});
    host_.peer(peer, PeerChange::Lost);
}

bool LoopControl::lose_faulty() {
    bool any = false;
    for (const auto& [peer, error] : edges_.faults().take()) {
        // One report per peer: several of its channels may be broken, and a stage that reports
        // twice is replaced itself.
        if (edges_.is_absent(peer)) continue;
        const Epoch epoch = edges_.epoch_of(peer);
        lose(peer);
        host_.end_on_error(port_.report_fault(peer, epoch, error));
        any = true;
    }
    return any;
}

}  // namespace paceline

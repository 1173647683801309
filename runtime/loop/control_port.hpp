// ControlPort: the interface through which a loop sends and receives control messages and learns
// which peers are lost or back.
//
// A stage has one peer for control messages, the conductor (stage_process.hpp); the conductor has
// all of its stages (supervisor.hpp). Called by the loop's thread only.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_link.hpp"
#include "ipc/wire/control.hpp"
#include "ipc/wire/control_socket.hpp"
#include "runtime/loop/wiring.hpp"

namespace paceline {

/// The conductor's address. Stages are numbered from 1.
inline constexpr StageId kConductor{0};

/// A control message for an actor of this process.
struct PortMail {
    Envelope envelope;
    control::Message message;
};
/// The process that hosts these actors is lost: close the channels with them.
struct PeersLost {
    std::vector<StageId> peers;
};
/// Channels to the next incarnation. They replace the closed ones.
struct PeersWired {
    std::vector<StageId> peers;
    Epoch epoch;
    std::vector<OutEdge> out;
    std::vector<InEdge> in;
};
/// The new incarnation is at work (at a stage: the same moment as PeersWired).
struct PeersJoined {
    std::vector<StageId> peers;
};
/// A consumer has opened its end of a link: the producer, an actor of this process, opens the
/// other.
struct LinkOffered {
    StageId from;
    StageId to;
    Epoch to_epoch;  // of the consumer's process
    LinkOffer offer;
};
using PortEvent = std::variant<PortMail, PeersLost, PeersWired, PeersJoined, LinkOffered>;

class ControlPort {
public:
    using Deliver = std::function<void(PortEvent)>;

    ControlPort() = default;
    ControlPort(const ControlPort&) = delete;
    ControlPort& operator=(const ControlPort&) = delete;
    virtual ~ControlPort() = default;

    /// One control message from actor `envelope.from` of this process to `envelope.to`. To a peer
    /// that is lost: dropped, and ok.
    [[nodiscard]] virtual Status send(Envelope envelope, const control::Message& message) = 0;
    /// Delivers what has arrived, in order, without waiting. An error ends the loop: the
    /// conductor is gone, the run cannot go on, the user pressed Ctrl-C (Errc::Cancelled).
    [[nodiscard]] virtual Status poll(const Deliver& deliver) = 0;
    /// The loop has closed its channels with `peer`, which broke their layout. An error ends the
    /// loop.
    [[nodiscard]] virtual Status report_fault(StageId peer,
                                              Epoch peer_epoch,
                                              const Error& error) = 0;
    /// The newest loss of `peer` was caused by a request: it does not count in the restart
    /// intensity.
    virtual void excuse_loss([[maybe_unused]] StageId peer) {}
    /// The loop has taken over the channels of a PeersWired.
    [[nodiscard]] virtual Status wired(StageId peer, Epoch peer_epoch) = 0;
    /// Passes the offer of consumer `to`, an actor of this process, on to producer `from`. To one
    /// that was replaced: dropped, and ok.
    [[nodiscard]] virtual Status offer(StageId from,
                                       Epoch from_epoch,
                                       StageId to,
                                       const LinkOffer& /*offer*/) {
        return Error{Errc::Unsupported, "no way for the offer of stage " +
                                            std::to_string(to.value) + " to stage " +
                                            std::to_string(from.value) + " (epoch " +
                                            std::to_string(from_epoch.value) + ")"};
    }
};

}  // namespace paceline

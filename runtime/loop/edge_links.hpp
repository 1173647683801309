// EdgeLinks: opens the links of a process's device edges and watches them.
//
// One end of an edge, from when the process has the channel:
//
//   consumer  open_in, offer out --------------> [Connecting] -- poll: Open --> [Open]
//   producer  [Waiting] -- offer in, open_out -> [Connecting] -- poll: Open --> [Open]
//
//   [Waiting], [Connecting]  not open within the limit ---------> the stage fails
//   [Connecting], [Open]     poll: error --> [Broken] -- grace --> the stage fails
//   any                      peer lost --> retired (stage_edges.hpp), destroyed when no job is left
//
// - Until its link is open a pool has no free slots: an actor waits as for a full pool.
// - An error may be the first sign that the peer is dying. If the peer's loss follows within the
//   grace time, the channel is retired; otherwise the stage fails.
// - An offer that is not for this incarnation of the consumer, and a second one, are dropped.
// - Links have threads: to report a change they ring the process's doorbell and set has_news().
//
// Errors name transport, both stages and the operation. One thread, the loop's; nothing here waits.
// Borrows device, doorbell, edges and port.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "ipc/base/result.hpp"
#include "ipc/transport/doorbell.hpp"
#include "ipc/transport/tensor_link.hpp"
#include "runtime/loop/context.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/loop/stage_edges.hpp"

namespace paceline {

class EdgeLinks {
public:
    static constexpr Micros kGrace{1'000'000};

    /// `device` may be nullptr: then an edge with a link is an error. `limit` 0: not limited.
    EdgeLinks(TensorDevice* device, Doorbell& bell, Micros limit);

    /// Opens the consumer's end of each new channel with a link and offers it; from now on their
    /// limit runs. Errc::Protocol for such a channel without a device.
    [[nodiscard]] Status attach(StageEdges& edges, ControlPort& port, Micros now);
    /// Opens the producer's end.
    [[nodiscard]] Status take(StageEdges& edges, LinkOffered offered);
    /// Looks at all links: pools get the slots of those that have opened.
    [[nodiscard]] Status poll(StageEdges& edges, Micros now);
    /// Calls poll() if has_news() or the time of a link has come.
    [[nodiscard]] Status poll_if_due(StageEdges& edges, Micros now) {
        return has_news() || (due_ && now >= *due_) ? poll(edges, now) : Status{};
    }

    // ---- frames, of an edge with a link; of others these change nothing ----

    /// A message is in the ring: starts the transfer of the tensor that it names.
    static void announce(StageEdges::Out& out,
                         std::uint16_t kind,
                         std::span<const std::byte> payload);
    /// A frame was read: whether it has to wait for a tensor; then it is in.held.
    [[nodiscard]] static bool hold(StageEdges::In& in, const Popped& frame);
    /// Whether the tensor of the frame that is held is there; it is expected from the first call on
    /// that finds the link open. (The producer's end may open before this one.) Errc::Protocol as
    /// TensorConsumer::announce().
    [[nodiscard]] static Result<bool> has_arrived(StageEdges::In& in);
    /// Whether there is a frame to be handled, or a held one to be checked again.
    [[nodiscard]] static bool has_input(StageEdges& edges);

    /// The state of a link has changed since the last poll().
    [[nodiscard]] bool has_news() const { return news_->load(std::memory_order_acquire); }
    /// When poll() must be called at the latest; nothing if no link waits.
    [[nodiscard]] std::optional<Micros> due() const { return due_; }

private:
    template <class Edge>
    [[nodiscard]] LinkSpec spec_of(const Edge& edge) const;
    template <class Side>
    [[nodiscard]] Status poll_one(Side& side, Micros now);

    TensorDevice* device_;
    Doorbell* bell_;
    Micros limit_;
    std::shared_ptr<std::atomic<bool>> news_;  // set by threads of links, cleared by poll()
    std::optional<Micros> due_;
};

}  // namespace paceline

// StageEdges: the open channels of a process and the loop's state of each. Channels are opened and
// retired with their peers.
//
//   wired ---> [open] --- peer lost, layout broken ---> [retired] --- jobs of before done ---> gone
//
// A retired channel is unused, but stays mapped, with its link: a job that was submitted before may
// still read or write its tensors. The address of a channel does not change: actors keep pointers
// to its pool while it is open (StageContext::tensors_to()). One thread, the loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ipc/transport/tensor_link.hpp"
#include "runtime/loop/context.hpp"
#include "runtime/loop/peer_faults.hpp"
#include "runtime/loop/wiring.hpp"

namespace paceline {

/// The link of a channel whose slots lie on a device; its states are drawn in edge_links.hpp.
template <class Link>
struct EdgeLink {
    std::unique_ptr<Link> end = nullptr;         // nullptr: none, or not opened yet
    bool watched = false;                        // its channel has a link, whose limit runs
    bool open = false;                           // the pool has its slots
    Micros due{Micros::max()};                   // when its stage fails, unless it opens
    std::optional<Error> broken = std::nullopt;  // nothing is sent or received any more
};

class StageEdges {
public:
    struct Out {
        OutEdge edge;
        EdgeLink<OutLink> link = {};
        bool has_news = false;    // published since the peer's doorbell was rung
        bool wants_room = false;  // a send met Full
        bool wants_slot = false;  // the tensor pool had no free slot
    };
    /// A frame that was taken from the ring and waits for its tensor; those after it stay in the
    /// ring.
    struct HeldFrame {
        std::uint16_t kind = 0;
        std::vector<std::byte> payload = {};
        PoolRef tensor = {};
        bool expected = false;  // the link was told of it
    };
    struct In {
        InEdge edge;
        EdgeLink<InLink> link = {};
        std::optional<HeldFrame> held = std::nullopt;
    };

    /// Takes the edges out of the wiring.
    explicit StageEdges(Wiring& wiring);

    // Iterate by index where control messages are delivered in between: these may close or add
    // edges (handlers may not).
    [[nodiscard]] std::vector<std::unique_ptr<Out>>& out() { return out_; }
    [[nodiscard]] std::vector<std::unique_ptr<In>>& in() { return in_; }
    /// nullptr if there is none: the peer is absent.
    [[nodiscard]] Out* find_out(StageId from, StageId to);
    [[nodiscard]] TensorProducer* tensors_to(StageId self, StageId to);
    [[nodiscard]] TensorConsumer* tensors_from(StageId self, StageId from);

    [[nodiscard]] bool is_absent(StageId peer) const { return absent_.contains(peer); }
    /// Of the peer's incarnation at the other end; 0 if there are no channels with it.
    [[nodiscard]] Epoch epoch_of(StageId peer) const;
    /// Retires all channels with `peer`; `jobs` were submitted until now, ever. Whether it was
    /// there until now.
    [[nodiscard]] bool lose(StageId peer, std::uint64_t jobs = 0);
    void add(std::vector<OutEdge> out, std::vector<InEdge> in);
    /// The peer's doorbell is rung once for all that was sent to it since the last call.
    void ring_bells();
    /// The doorbells of producers that wait for slots which were released since the last call.
    void ring_for_slots();
    /// The first `jobs` jobs ever submitted have ended: channels that were retired before the next
    /// job was submitted are destroyed.
    void bury_retired(std::uint64_t jobs);

    /// Of peers that broke a channel, until the loop treats them as lost.
    [[nodiscard]] PeerFaults& faults() { return faults_; }

    /// Room for the longest frame of any channel, aligned for every message.
    [[nodiscard]] std::span<std::byte> frame_buffer();

private:
    struct alignas(64) Chunk {
        std::byte bytes[64];
    };
    void add_in(InEdge edge);
    template <class Edge>
    struct Retired {
        std::uint64_t jobs;  // submitted before it was retired
        std::unique_ptr<Edge> edge;
    };

    std::vector<std::unique_ptr<Out>> out_;
    std::vector<std::unique_ptr<In>> in_;
    std::set<StageId> absent_;  // peers that are lost: what is sent to them is dropped
    PeerFaults faults_;
    std::vector<Retired<Out>> retired_out_;
    std::vector<Retired<In>> retired_in_;
    std::vector<Chunk> buffer_{1};
};

}  // namespace paceline

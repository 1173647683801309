// SimEdges: the channels of one simulated incarnation with its peers in other processes. The
// counterpart of runtime/loop/stage_edges.hpp.
//
//   wired ---> [open] --- peer lost ---> [retired] --- no job, no mail ---> gone
//
// A retired channel is not read any more, but jobs may still touch its tensors. Channels are shared
// with the peer at the other end. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "runtime/simulation/sim_connection.hpp"

namespace paceline {

class SimEdges {
public:
    struct Out {
        std::shared_ptr<SimChannel> channel;
        bool wants_room = false;  // a send met Full
        bool wants_slot = false;  // the tensor pool had no free slot
    };

    explicit SimEdges(const SimIdentity& self) : self_{self} {}

    // Iterate by index where control messages are handled in between: these may close or add edges.
    [[nodiscard]] std::vector<Out>& out() { return out_; }
    [[nodiscard]] const std::vector<Out>& out() const { return out_; }
    [[nodiscard]] const SimChannels& in() const { return in_; }
    /// nullptr if there is none: the peer is absent.
    [[nodiscard]] Out* find_out(StageId from, StageId to);
    [[nodiscard]] TensorConsumer* tensors_from(StageId self, StageId from);
    /// Of the peer's incarnation at the other end; 0 if there are no channels with it.
    [[nodiscard]] Epoch epoch_of(StageId peer) const;
    /// Whether it has channels with this very incarnation.
    [[nodiscard]] bool are_with(std::uint32_t serial) const;
    /// When the first frame can be handled that is in a channel; nothing if there is none.
    [[nodiscard]] std::optional<SimTime> next_arrival() const;

    void add(const SimChannels& channels);
    void add_absent(const std::vector<StageId>& peers) {
        absent_.insert(peers.begin(), peers.end());
    }
    [[nodiscard]] bool is_absent(StageId peer) const { return absent_.contains(peer); }
    /// Retires all channels with `peer`. Whether it was there until now.
    [[nodiscard]] bool lose(StageId peer);
    void bury_retired() { retired_.clear(); }
    /// The incarnation has ended.
    void clear();

    /// Before it sleeps: marks channels whose room it waits for and checks them again. True: there
    /// is room.
    [[nodiscard]] bool ask_for_room();
    /// What was handled or released may be what a producer waits for: wakes it.
    void tell_producers();

private:
    const SimIdentity& self_;
    std::vector<Out> out_;
    SimChannels in_;
    SimChannels retired_;
    std::set<StageId> absent_;  // peers that are lost: what is sent to them is dropped
};

}  // namespace paceline

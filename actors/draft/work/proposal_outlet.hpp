// ProposalOutlet: what a speculative stage sends of its requests' trees: proposals to the first
// segment, and to the other speculative stage a copy of each, or the trunk alone.
// Emits: Proposal, Draw; TrunkSender what it declares.
//
// A proposal that finds the channel full is lost, but the newest one is sent when there is room
// again. Borrows the host. Threads: the actor's loop.
#pragma once

#include <optional>
#include <span>

#include "actors/draft/work/draft_host.hpp"
#include "actors/draft/work/trunk_sender.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class ProposalOutlet {
public:
    using Emits = Kinds<msg::Proposal, msg::Draw>;

    explicit ProposalOutlet(DraftHost& host) : host_{host} {}

    /// The other stage and what it is sent, before DraftWork::on_start().
    void send_trunk_to(StageId correct) { trunk_.emplace(correct, host_); }
    void send_copies_to(StageId draft) { copies_to_ = draft; }

    void send(DraftRequest& request, msg::ProposalState state);
    /// What was drawn after a node, before anything that depends on it. If there is no room it is
    /// not sent later: the time at which that happens would depend on the drawn tokens.
    void send_draw(const DraftRequest& request, DraftNodeId node, const DrawnSiblings& drawn);
    /// A pass has computed these nodes of the request, whose tree has grown.
    void send_trunk(const DraftRequest& request, std::span<const DraftNodeId> computed);

    /// As Actor::on_room() and on_peer().
    void room(StageId to);
    void peer_changed(StageId peer);

private:
    DraftHost& host_;
    std::optional<TrunkSender> trunk_;
    std::optional<StageId> copies_to_;
};

}  // namespace paceline

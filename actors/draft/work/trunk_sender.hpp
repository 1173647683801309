// TrunkSender: the role of a Draft with a separate Correct: sends it the trunk, and the keys and
// values of the trunk's nodes in shared memory.
// Emits: Proposal (the trunk), TensorNote (one per node whose keys and values were just computed).
//
// A note is about the trunk as it was sent last, so no trunk is sent while a note waits for room.
// Keys and values for which there is no room are not sent: Correct computes them itself.
// Borrows the host. Threads: the actor's loop.
#pragma once

#include <deque>
#include <span>

#include "actors/draft/draft_request.hpp"
#include "actors/draft/work/draft_host.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class TrunkSender {
public:
    using Emits = Kinds<msg::Proposal, msg::TensorNote>;

    TrunkSender(StageId correct, DraftHost& host) : correct_{correct}, host_{host} {}

    [[nodiscard]] StageId correct() const { return correct_; }
    /// The trunk of a request; `computed`: the nodes that the last pass has computed.
    void tell(const DraftRequest& request, std::span<const DraftNodeId> computed);
    /// Sends waiting notes if there is room. Whether none waits any more.
    bool flush();
    /// The channel to Correct is gone, and with it the tensors that the notes name.
    void forget() { notes_.clear(); }

private:
    void send_kv(const DraftRequest& request, const DraftNode& node);

    StageId correct_;
    DraftHost& host_;
    std::deque<msg::TensorNote> notes_;  // published, but found no room
};

}  // namespace paceline

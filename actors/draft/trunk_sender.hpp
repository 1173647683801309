// TrunkSender: the role of a Draft with a separate Correct: sends it the trunk, and the keys and
// values of the trunk's nodes in shared memory.
// Emits: Proposal (the trunk), TensorNote (one per node whose keys and values were just computed).
//
// A note is about the trunk as it was sent last, so no trunk is sent while a note waits for room.
// Keys and values for which there is no room are not sent: Correct computes them itself.
// Borrows the model. Threads: the actor's loop.
#pragma once

#include <deque>
#include <span>

#include "actors/draft/draft_model.hpp"
#include "actors/draft/draft_request.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

class TrunkSender {
public:
    using Handles = Kinds<>;
    using Emits = Kinds<msg::Proposal, msg::TensorNote>;

    /// `model`: nullptr where Draft proposes from a source alone.
    TrunkSender(StageId correct, DraftModel* model) : correct_{correct}, model_{model} {}

    void start(StageContext& context) { context_ = &context; }
    /// The trunk of a request; `computed`: the nodes that the last pass has computed.
    void tell(const DraftRequest& request, std::span<const DraftNodeId> computed);
    /// Sends waiting notes if there is room. Whether none waits any more.
    bool flush();
    /// The channel to Correct is gone, and with it the tensors that the notes name.
    void forget() { notes_.clear(); }

private:
    void send_kv(const DraftRequest& request, const DraftNode& node);

    StageId correct_;
    DraftModel* model_;
    StageContext* context_ = nullptr;
    std::deque<msg::TensorNote> notes_;  // published, but found no room
};

}  // namespace paceline

// BeginResendQueue: the stages that missed committed tokens of a running request and asked for its
// Begin again.
//
//     want(position) --> [wanted] -- the text is that long: due() --> [sent, up to its length]
//                          ^                                             |
//                          +--------- want() of a later position --------+
//
// A stage may receive a verdict before the conductor does. A Begin sent at once could lack the
// missed tokens and leave the same gap, so it is sent when the text is long enough. A stage that
// asks for tokens that its last Begin had does not get another one.
// Threads: the actor's loop. Bounded by the open requests and the stages.
#pragma once

#include <map>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class BeginResendQueue {
public:
    /// `stage` misses tokens before `position` of what is being decoded as `request`.
    void want(RequestId request, StageId stage, Position position);
    /// The stages to which the Begin is to be sent now that the text has `length` tokens. All of
    /// the text counts as sent to them.
    [[nodiscard]] std::vector<StageId> due(RequestId request, Position length);

    /// Another attempt, or the end.
    void forget(RequestId request) { demands_.erase(request); }
    /// The stage is lost: its next incarnation gets its Begins anyway.
    void forget(StageId stage);

private:
    struct Demand {
        Position wanted = 0;
        Position sent = 0;
    };
    std::map<RequestId, std::map<StageId, Demand>> demands_;
};

}  // namespace paceline

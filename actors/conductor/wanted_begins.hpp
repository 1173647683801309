// WantedBegins: who missed committed tokens of a running request, and asked for its Begin once more.
//
//     want(position) --> [wanted] -- the text is that long: due() --> [told, up to the text's length]
//                          ^                                             |
//                          +--------- want() of a later position --------+
//
// A stage hears of a verdict before the conductor may have, so a Begin that lacked the tokens in question
// would leave the same gap. Whoever asks for what it was told already is not told again.
// Threads: the actor's loop. Bounded by the open requests and the stages.
#pragma once

#include <map>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class WantedBegins {
public:
    /// `stage` misses tokens before `position` of what is being decoded as `request`.
    void want(RequestId request, StageId stage, Position position);
    /// The stages to tell now that the text has `length` tokens. They count as told of all of it.
    [[nodiscard]] std::vector<StageId> due(RequestId request, Position length);

    /// Another attempt, or the end.
    void forget(RequestId request) { wishes_.erase(request); }
    /// Lost: its next incarnation is told anyway.
    void forget(StageId stage);

private:
    struct Wish {
        Position wanted = 0;
        Position told = 0;
    };
    std::map<RequestId, std::map<StageId, Wish>> wishes_;
};

}  // namespace paceline

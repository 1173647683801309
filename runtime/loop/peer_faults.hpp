// PeerFaults: the peers of a loop that broke a channel's layout or sent an invalid message.
//
// A fault may be found while a handler runs that still holds tensors of the channel. So it is only
// recorded, no further frame of the peer is read, and the loop closes the channels when no handler
// runs.
// Threads: the loop's.
#pragma once

#include <algorithm>
#include <fmt/core.h>
#include <utility>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

class PeerFaults {
public:
    struct Found {
        StageId peer;
        Error error;
    };
    /// `direction`: "from" or "to".
    void add(const char* direction, StageId peer, const Error& error) {
        found_.push_back({peer,
                          {error.code, fmt::format("channel {} stage {}: {}", direction, peer.value,
                                                   error.what)}});
    }
    [[nodiscard]] bool has(StageId peer) const {
        return std::any_of(found_.begin(), found_.end(),
                           [peer](const Found& found) { return found.peer == peer; });
    }
    /// All that was noted since the last call, in order; a peer may be there twice.
    [[nodiscard]] std::vector<Found> take() { return std::exchange(found_, {}); }

private:
    std::vector<Found> found_;
};

}  // namespace paceline

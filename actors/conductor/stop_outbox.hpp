// StopOutbox: the conductor's Stops, each on its way or waiting until its channel has room.
//
// A draft that misses a Stop keeps the request's pages and one of its places for good, so none is lost.
//
//     send() --> channel has room, nothing waits --> sent
//            \-> [waits, in order] -- flush(): room again --> sent
//                                  -- forget(): the stage is lost, its channel is gone
//
// Bounded: of one request the latest attempt's alone waits, and a stage that leaves kWaitingMax of them
// unread is its owner's to replace.
// Threads: the actor's loop.
#pragma once

#include <cstddef>
#include <deque>
#include <map>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

class StopOutbox {
public:
    static constexpr std::size_t kWaitingMax = 4096;  // of one stage

    /// Errors: Protocol if too many wait; then none waits any more.
    [[nodiscard]] Status send(Context& context, StageId to, const msg::Stop& stop);
    /// Tries again what waits for `to`.
    void flush(Context& context, StageId to);
    void forget(StageId to) { waiting_.erase(to); }

private:
    std::map<StageId, std::deque<msg::Stop>> waiting_;  // holds no empty queue
};

}  // namespace paceline

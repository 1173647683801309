// StopOutbox: the conductor's Stops, each on its way or waiting until its channel has room.
//
// A draft that missed a Stop would keep the request's pages for ever, so Stops are never dropped.
//
//     send() --> channel has room, nothing waits --> sent
//            \-> [waits, in order] -- flush(): room again --> sent
//                                  -- forget(): the stage is lost, its channel is gone
//
// Bounded: only the Stop of a request's latest attempt waits, and a stage that leaves kWaitingMax
// of them unread is an error, after which the owner replaces it.
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

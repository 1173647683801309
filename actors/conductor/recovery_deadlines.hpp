// RecoveryDeadlines: how long each request may still wait for a stage that is lost.
//
//   start() --> [counts] -- the limit has passed --> on_expired, and it counts no more
//                  \------- stop(), stop_all() ----> forgotten
//
// Time counts in short steps, so that a suspension of this process or of the machine does not
// count.
// Bounded by the requests that wait. Threads: the conductor's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "ipc/base/ids.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

class RecoveryDeadlines {
public:
    RecoveryDeadlines(Micros limit, std::function<void(RequestId)> on_expired)
        : limit_{limit}, on_expired_{std::move(on_expired)} {}
    RecoveryDeadlines(const RecoveryDeadlines&) = delete;
    RecoveryDeadlines& operator=(const RecoveryDeadlines&) = delete;

    /// `context` outlives this object. If the deadline of `request` counts already, nothing
    /// happens.
    void start(Context& context, RequestId request);
    void stop(RequestId request) { timers_.erase(request); }
    void stop_all() { timers_.clear(); }

private:
    struct Wait {
        std::uint64_t timer = 0;
        Micros left{0};
        bool is_last = false;  // granted once a pause was over, beyond the limit
    };
    void wait(Context& context, RequestId request, Wait wait);

    Micros limit_;
    std::function<void(RequestId)> on_expired_;
    std::map<RequestId, std::uint64_t> timers_;  // the one that counts
    std::uint64_t newest_ = 0;                   // timer
};

}  // namespace paceline

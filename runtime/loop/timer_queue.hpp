// TimerQueue: functions that are called at a time, in the order of the times; equal times in the
// order of schedule().
//
// Threads: the loop's. Not bounded: actors set a fixed number of timers per request.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "runtime/loop/context.hpp"

namespace paceline {

class TimerQueue {
public:
    void schedule(Micros due, std::function<void()> wake) {
        timers_.push({due, order_++, std::move(wake)});
    }
    [[nodiscard]] std::optional<Micros> next() const {
        if (timers_.empty()) return std::nullopt;
        return timers_.top().due;
    }
    /// Takes the next one out of the queue if it is due; empty if none is.
    [[nodiscard]] std::function<void()> take_due(Micros now) {
        if (timers_.empty() || timers_.top().due > now) return {};
        std::function<void()> wake = timers_.top().wake;
        timers_.pop();
        return wake;
    }

private:
    struct Timer {
        Micros due;
        std::uint64_t order;
        std::function<void()> wake;
        bool operator>(const Timer& other) const {
            return due != other.due ? due > other.due : order > other.order;
        }
    };
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
    std::uint64_t order_ = 0;
};

}  // namespace paceline

// WaitingOrder: which waiting requests others may pass, and how long a preempted one waits.
//
// Requests may pass a waiting one that does not fit yet for kPassLimit, counted from when it was
// the first of these: otherwise it would never begin. None passes one that was preempted, which
// begins no sooner than another request has ended, as long as any is running.
// Pure: times come by calls. Threads: the conductor's loop.
#pragma once

#include <cstdint>
#include <optional>

#include "actors/conductor/request_table.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

class WaitingOrder {
public:
    static constexpr Micros kPassLimit{2'000'000};

    /// Whether `waiting` was preempted and no request has ended since.
    [[nodiscard]] bool waits_for_end(const RequestRecord& waiting) const {
        return waiting.preempted && waiting.ended_before == ends_;
    }
    /// Whether later requests may begin before this one, which does not begin now.
    [[nodiscard]] bool may_pass(const RequestRecord& waiting, Micros now) {
        if (waiting.preempted) return false;
        if (!first_ || *first_ > waiting.turn) {
            first_ = waiting.turn;
            since_ = now;
        }
        return now - since_ < kPassLimit;
    }

    void preempted(RequestRecord& record) const { record.ended_before = ends_; }
    /// It begins or ends: it waits no more.
    void left(const RequestRecord& record) {
        if (first_ == record.turn) first_.reset();
    }
    /// A request that ran has ended.
    void ended() { ++ends_; }

private:
    std::uint64_t ends_ = 0;
    std::optional<std::uint64_t> first_;  // turn of the first one that does not fit
    Micros since_{0};
};

}  // namespace paceline

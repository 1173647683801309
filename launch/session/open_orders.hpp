// OpenOrders: the orders of a session that have not ended, the time in which there was one, and how
// the loop has ended.
//
//   opened() ... closed()      the clock goes while at least one order is open
//   end()                      the loop has ended: no order closes any more
//
// This is what the loop's thread and those that wait for it share. Threads: all members from any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "ipc/base/result.hpp"

namespace paceline {

class OpenOrders {
public:
    /// Before the order is submitted, because it may end at once.
    void opened();
    void closed();
    /// Once.
    void end(const Status& ended);
    /// Nothing: the loop has not ended.
    [[nodiscard]] std::optional<Status> ended() const;

    /// Until no order is open; the outcome of the loop if it has ended by then.
    [[nodiscard]] Status wait_closed() const;
    void wait_ended() const;

    /// With an order open, since restart_clock().
    [[nodiscard]] double seconds() const;
    void restart_clock();

private:
    using Clock = std::chrono::steady_clock;

    mutable std::mutex mutex_;  // of all that follows
    mutable std::condition_variable changed_;
    int open_ = 0;
    double seconds_ = 0.0;                    // with an order open, until began_
    Clock::time_point began_ = Clock::now();  // the open time that goes on, if an order is open
    std::optional<Status> ended_;
};

}  // namespace paceline

// OrderPlaces: how many orders of a service may be open at a time, waiting ones included, and the
// ids that it gives them.
//
// Clients take places, and the loop leaves them when an answer is over. Threads: all members from
// any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "launch/session/service/service_order.hpp"

namespace paceline {

class OrderPlaces {
public:
    explicit OrderPlaces(std::size_t places) : places_{places} {}

    /// Nothing: all places are taken.
    [[nodiscard]] std::optional<AnswerId> take() {
        const std::lock_guard lock{mutex_};
        if (taken_ >= places_) return std::nullopt;
        ++taken_;
        return AnswerId{++newest_};
    }
    void leave() {
        {
            const std::lock_guard lock{mutex_};
            --taken_;
        }
        changed_.notify_all();
    }
    [[nodiscard]] std::size_t taken() const {
        const std::lock_guard lock{mutex_};
        return taken_;
    }
    /// Until none is taken. False: the time is over.
    [[nodiscard]] bool wait_empty(std::chrono::milliseconds limit) {
        std::unique_lock lock{mutex_};
        return changed_.wait_for(lock, limit, [this] { return taken_ == 0; });
    }

private:
    const std::size_t places_;
    mutable std::mutex mutex_;  // of what follows
    std::condition_variable changed_;
    std::size_t taken_ = 0;
    std::uint64_t newest_ = 0;
};

}  // namespace paceline

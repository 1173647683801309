// LoopCalls: a queue of functions that other threads post to a loop's thread.
//
// Threads: add() from any; run() from the one that runs the loop, or while none does. A function
// may add others; the next run() calls them. Not bounded, because callers wait for their functions.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace paceline {

class LoopCalls {
public:
    void add(std::function<void()> call) {
        const std::lock_guard lock{mutex_};
        calls_.push_back(std::move(call));
        any_.store(true, std::memory_order_release);
    }
    /// Calls all functions in order; whether there were any. Cheap if not.
    bool run() {
        if (!any_.load(std::memory_order_acquire)) return false;
        std::vector<std::function<void()>> calls;
        {
            const std::lock_guard lock{mutex_};
            calls.swap(calls_);
            any_.store(false, std::memory_order_release);
        }
        for (const auto& call : calls) call();
        return true;
    }

private:
    std::atomic<bool> any_{false};  // hint; calls_ is what counts, under the mutex
    std::mutex mutex_;
    std::vector<std::function<void()>> calls_;
};

}  // namespace paceline

// LoopThread: the thread of a pipeline: it forks the stages, runs the conductor's loop from start
// to shutdown, and executes calls of other threads between two messages.
//
//               serve()                     the loop ends: leave(), or an error
//   [no loop] ----------> [loop runs] --------------------------------------> [over]
//        \                     |                                              /
//         \                    v                                             /
//          +----------> calls of other threads are executed <---------------+
//
// Stages die with the thread that forked them (spawn.hpp), so they are started by a call() and shut
// down by one before this object is destroyed. The thread blocks signals: they must interrupt a
// terminal's read.
// Threads: all members from any, but serve() once. Borrows the loop.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/loop/stage_loop.hpp"

namespace paceline {

class LoopThread {
public:
    LoopThread();
    LoopThread(const LoopThread&) = delete;
    LoopThread& operator=(const LoopThread&) = delete;
    /// What was posted is executed first. Precondition: no loop runs.
    ~LoopThread();

    /// From now on the thread runs `loop`, once; `over` is called on the thread when that ends.
    void serve(StageLoop& loop, std::function<void(const Status& ended)> over);

    /// Returns at once. The thread executes `call` between two handlers of the loop.
    void post(std::function<void()> call);
    /// Waits for the result; on the thread itself `call` is executed at once.
    template <class Call>
    auto call(Call call) {
        if (is_here()) return call();
        // Shared: the thread may be at its end still when this one has the result.
        const auto task = std::make_shared<std::packaged_task<decltype(call())()>>(std::move(call));
        auto result = task->get_future();
        post([task] { (*task)(); });
        return result.get();
    }
    [[nodiscard]] bool is_here() const { return std::this_thread::get_id() == thread_.get_id(); }

private:
    void work();
    void run_loop(std::unique_lock<std::mutex>& lock);

    std::mutex mutex_;  // of what follows
    std::condition_variable changed_;
    std::deque<std::function<void()>> calls_;
    StageLoop* loop_ = nullptr;
    std::function<void(const Status&)> over_;
    bool running_ = false;  // calls go to the loop
    bool ending_ = false;
    std::thread thread_;  // last: it uses the rest
};

}  // namespace paceline

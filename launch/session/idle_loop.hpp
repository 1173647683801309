// IdleLoop: runs a pipeline's loop while no request is open, so that a stage that dies then is
// noticed and replaced before the next request.
//
//             resume()                    pause(): after the current handler
//   [parked] ----------> [loop running] ------------------------------------> [parked]
//                              |
//                              +-- it ends by itself: an error --> [over]: the next run of
//                                                            the loop by its owner ends with it
//
// A thread of its own runs only the loop: a caller that uses the loop's objects
// pauses it first. Stages that it starts die with this thread (spawn.hpp), so they must be shut
// down before this object is destroyed. The thread blocks signals, because they must interrupt a
// terminal's read.
// Threads: all calls from one at a time. Borrows the loop.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/loop/stage_loop.hpp"

namespace paceline {

class IdleLoop {
public:
    /// `leave` makes the loop end in good order; it is called on the loop's thread.
    IdleLoop(StageLoop& loop, std::function<void()> leave);
    IdleLoop(const IdleLoop&) = delete;
    IdleLoop& operator=(const IdleLoop&) = delete;
    ~IdleLoop();

    void resume();
    /// Afterwards the loop is the caller's.
    void pause();

private:
    enum class State : std::uint8_t { Parked, Wanted, Running, Over, Ending };
    void work();

    StageLoop& loop_;
    std::function<void()> leave_;
    std::mutex mutex_;  // of what follows
    std::condition_variable changed_;
    State state_ = State::Parked;
    bool leaving_ = false;  // the loop was asked to end
    std::thread thread_;    // last: it uses the rest
};

}  // namespace paceline

#include "launch/session/idle_loop.hpp"

#include <signal.h>
#include <utility>

namespace paceline {

IdleLoop::IdleLoop(StageLoop& loop, std::function<void()> leave)
    : loop_{loop}, leave_{std::move(leave)} {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits the mask
    thread_ = std::thread{[this] { work(); }};
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

IdleLoop::~IdleLoop() {
    pause();
    {
        const std::lock_guard lock{mutex_};
        state_ = State::Ending;
    }
    changed_.notify_all();
    thread_.join();
}

void IdleLoop::resume() {
    {
        const std::lock_guard lock{mutex_};
        if (state_ != State::Parked) return;
        state_ = State::Wanted;
    }
    changed_.notify_all();
}

void IdleLoop::pause() {
    std::unique_lock lock{mutex_};
    if (state_ == State::Wanted) state_ = State::Parked;
    if (state_ != State::Running) return;
    leaving_ = true;
    loop_.post(leave_);
    changed_.wait(lock, [this] { return state_ != State::Running; });
}

void IdleLoop::work() {
    std::unique_lock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [this] { return state_ == State::Wanted || state_ == State::Ending; });
        if (state_ == State::Ending) return;
        state_ = State::Running;
        lock.unlock();
        const Status ended = loop_.run();
        lock.lock();
        // What ended it without being asked, or in spite of that, ends the loop's next run as well.
        state_ = ended.ok() && leaving_ ? State::Parked : State::Over;
        leaving_ = false;
        changed_.notify_all();
    }
}

}  // namespace paceline

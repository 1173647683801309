#include "launch/session/loop_thread.hpp"

#include <signal.h>
#include <utility>

namespace paceline {

LoopThread::LoopThread() {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits the mask
    thread_ = std::thread{[this] { work(); }};
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LoopThread::~LoopThread() {
    {
        const std::lock_guard lock{mutex_};
        ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void LoopThread::serve(StageLoop& loop, std::function<void(const Status& ended)> over) {
    {
        const std::lock_guard lock{mutex_};
        loop_ = &loop;
        over_ = std::move(over);
        running_ = true;  // what is posted from now on is the loop's, after its actors have started
    }
    changed_.notify_all();
}

void LoopThread::post(std::function<void()> call) {
    {
        const std::lock_guard lock{mutex_};
        if (running_) return loop_->post(std::move(call));
        calls_.push_back(std::move(call));
    }
    changed_.notify_all();
}

void LoopThread::work() {
    std::unique_lock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [this] { return !calls_.empty() || loop_ != nullptr || ending_; });
        while (!calls_.empty()) {
            const std::function<void()> call = std::move(calls_.front());
            calls_.pop_front();
            lock.unlock();
            call();
            lock.lock();
        }
        if (ending_) return;
        if (loop_ != nullptr) run_loop(lock);
    }
}

void LoopThread::run_loop(std::unique_lock<std::mutex>& lock) {
    StageLoop& loop = *loop_;
    lock.unlock();
    const Status ended = loop.run();
    lock.lock();
    running_ = false;
    loop_ = nullptr;
    const auto over = std::exchange(over_, nullptr);
    lock.unlock();
    loop.run_posted();  // of threads that came at the last moment
    if (over) over(ended);
    lock.lock();
}

}  // namespace paceline

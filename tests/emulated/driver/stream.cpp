#include "tests/emulated/driver/stream.hpp"

#include <utility>

#include "tests/emulated/driver/emulation.hpp"

namespace paceline::emulated {
namespace {

constexpr std::chrono::microseconds kSpin{30};  // between two looks of work that waits

}  // namespace

Stream::Stream() : thread_{[this] { run(); }} {
    count_object(1);
}

Stream::~Stream() {
    {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, kDrainLimit, [this] { return queue_.empty(); })) {
            misuse("a stream is destroyed while work in it does not end");
            queue_.clear();
        }
        ends_ = true;
        changed_.notify_all();
    }
    thread_.join();
    count_object(-1);
}

void Stream::submit(Work work) {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
}

void Stream::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
        if (ends_) return;
        const Work work = queue_.front();
        lock.unlock();
        bool done = work();
        while (!done) {
            std::this_thread::sleep_for(kSpin);
            {
                const std::scoped_lock again(mutex_);
                if (queue_.empty()) break;  // given up
            }
            done = work();
        }
        lock.lock();
        if (!queue_.empty()) queue_.pop_front();
        changed_.notify_all();
    }
}

void Event::record(Stream& stream) {
    ++wanted_;
    stream.submit([reached = reached_, wanted = wanted_] {
        *reached = wanted;
        return true;
    });
}

}  // namespace paceline::emulated

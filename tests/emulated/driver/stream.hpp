// Stream: work in order on the emulated device, done by a thread of its own.
//
// A piece of work is called again and again until it says that it is done, as a kernel spins. An
// Event is reached when the work before its last record() is done; before the first it is reached.
//
// Threads: any. The destructor waits for what is left: work that never ends is misuse (a stream
// destroyed under a kernel that spins), found after kDrainLimit.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace paceline::emulated {

class Stream {
public:
    using Work = std::function<bool()>;  // true: done
    static constexpr std::chrono::seconds kDrainLimit{20};

    Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream();

    void submit(Work work);
    /// Operations of NCCL that are being launched into it: nothing else may be submitted.
    void launching(int change) { launching_ += change; }
    [[nodiscard]] bool launching() const { return launching_ > 0; }

private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work> queue_;
    bool ends_ = false;
    std::atomic<int> launching_{0};
    std::thread thread_;
};

class Event {
public:
    void record(Stream& stream);
    [[nodiscard]] bool reached() const { return *reached_ >= wanted_; }

private:
    std::uint64_t wanted_ = 0;
    std::shared_ptr<std::atomic<std::uint64_t>> reached_ =
        std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace paceline::emulated

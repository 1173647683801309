// TeamSize: how many threads of a team work, by how long each was kept waiting for a core.
//
// Threads that meet at barriers are as slow as the slowest of them. One whose core is busy with
// something else (another program, another run of this one) holds up all, and the team is faster
// without it:
//
//           a thread waited for more than a quarter of the time, at `looks` looks in a row
//   [n] ----------------------------------------------------------> [n - 1]
//    ^                                                                 | `patience` later
//    |        it waited again: back, and `patience` doubles            v
//    +--- it did not wait: stays, `patience` as at first ---------- [n, on trial]
//
// Pure: told times, it answers a number. One thread.
#pragma once

#include <algorithm>
#include <chrono>

namespace paceline {

class TeamSize {
public:
    using Time = std::chrono::nanoseconds;
    /// Busy time of the team between two looks: several slices of the scheduler.
    static constexpr Time kLookInterval = std::chrono::milliseconds{25};
    static constexpr Time kPatienceMin = std::chrono::milliseconds{250};
    static constexpr Time kPatienceMax = std::chrono::seconds{8};
    static constexpr int kWaitingParts = 4;  // a quarter

    explicit TeamSize(int capacity, int looks = 1)
        : capacity_{capacity}, looks_{looks}, size_{capacity} {}

    /// All take part, and nothing was seen yet.
    void start_anew() { *this = TeamSize{capacity_, looks_}; }

    [[nodiscard]] int capacity() const { return capacity_; }
    [[nodiscard]] int size() const { return size_; }

    /// In the last `busy` time the thread that waited longest for a core waited for `waited`. `now`
    /// is of any clock that only goes forward.
    void look(Time now, Time busy, Time waited) {
        // Alone a thread may wait too, perhaps on the wrong core: that is no reason not to try.
        late_ = waited * kWaitingParts > busy ? late_ + 1 : 0;
        if (late_ >= (on_trial_ ? 1 : looks_) && size_ > 1) {
            late_ = 0;
            patience_ = on_trial_ ? std::min(2 * patience_, kPatienceMax) : kPatienceMin;
            on_trial_ = false;
            --size_;
            grow_at_ = now + patience_;
            return;
        }
        if (on_trial_) {
            on_trial_ = false;
            patience_ = kPatienceMin;
            grow_at_ = now + patience_;
        }
        if (size_ == capacity_ || now < grow_at_) return;
        ++size_;
        on_trial_ = true;
    }

private:
    int capacity_;
    int looks_;
    int size_;
    int late_ = 0;           // looks in a row at which a thread had waited
    bool on_trial_ = false;  // grown at the last look
    Time patience_ = kPatienceMin;
    Time grow_at_{0};
};

}  // namespace paceline

// AnswerClock: the time that the deadlines of answers count: that in which the pipeline was whole.
//
// It goes in ticks, at most as fine as they come. Pure: times come by calls. One thread.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

namespace paceline {

class AnswerClock {
public:
    using Clock = std::chrono::steady_clock;
    using Micros = std::chrono::microseconds;

    explicit AnswerClock(Clock::time_point now) : last_tick_{now} {}

    [[nodiscard]] Micros now() const { return whole_; }
    /// `whole`: the time since the last tick counts.
    void tick(Clock::time_point now, bool whole) {
        const auto passed =
            std::chrono::duration_cast<Micros>(now - std::exchange(last_tick_, now));
        if (whole) whole_ += passed;
    }
    /// All answers are to be over within `limit` from now on.
    void end_in(std::chrono::milliseconds limit) { end_ = whole_ + limit; }
    [[nodiscard]] bool is_past_end() const { return end_ && whole_ > *end_; }

private:
    Micros whole_{0};
    Clock::time_point last_tick_;
    std::optional<Micros> end_;
};

}  // namespace paceline

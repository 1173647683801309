// DraftPause: when a draft whose candidates are never right pauses.
//
// A candidate costs a pass of the draft and a row of the target. A draft that has nothing to say about
// this text (another language, random weights) would cost that at every verdict. After a streak of
// verdicts that took none of its candidates it rests, then tries once; each time in vain it rests twice
// as long. The first right candidate makes it forget all that.
// Pure; one per request.
#pragma once

#include <algorithm>
#include <cstdint>

namespace paceline {

class DraftPause {
public:
    static constexpr std::int32_t kStreak = 8;  // a draft that is right in 0.4 gets there in 2 %
    static constexpr std::int32_t kFirstRest = 8;
    static constexpr std::int32_t kLongestRest = 64;

    /// A verdict took `accepted` of the candidates on a path of at most `could`.
    void verified(std::int32_t accepted, std::int32_t could) {
        if (accepted > 0) {
            *this = {};
            return;
        }
        if (rest_ > 0) {
            --rest_;  // candidates that were under way when it began count no more
            return;
        }
        if (could <= 0 || ++misses_ < kStreak) return;
        rest_ = next_rest_;
        next_rest_ = std::min(2 * next_rest_, kLongestRest);
        misses_ = kStreak - 1;
    }
    [[nodiscard]] bool rests() const { return rest_ > 0; }

private:
    std::int32_t misses_ = 0;  // in a row
    std::int32_t rest_ = 0;    // verdicts to go
    std::int32_t next_rest_ = kFirstRest;
};

}  // namespace paceline

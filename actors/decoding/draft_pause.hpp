// DraftPause: when a draft whose candidates are never right pauses.
//
// A candidate costs a pass of the draft and a row of the target. A draft that cannot predict this
// text (another language, random weights) would cost that at every verdict. A counter grows by 1 at
// a verdict without an accepted candidate and shrinks by kCredit at any other. A draft that is
// right in fewer than one of kCredit + 1 verdicts reaches kStreak and pauses, then tries once: a
// failed try begins a pause twice as long. An accepted candidate ends a pause and halves the next
// one. Pure; one per request.
#pragma once

#include <algorithm>
#include <cstdint>

namespace paceline {

class DraftPause {
public:
    static constexpr std::int32_t kStreak = 8;  // a draft that is right in 0.4 gets there in 2 %
    static constexpr std::int32_t kFirstRest = 8;
    static constexpr std::int32_t kLongestRest = 64;

    static constexpr std::int32_t kCredit = 4;

    /// A verdict took `accepted` of the candidates on a path of at most `could`.
    void verified(std::int32_t accepted, std::int32_t could) {
        if (accepted > 0) {
            misses_ = std::max(misses_ - kCredit, 0);
            next_rest_ = std::max(next_rest_ / 2, kFirstRest);
            rest_ = 0;
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
    std::int32_t misses_ = 0;  // less what was right, up to kStreak
    std::int32_t rest_ = 0;    // verdicts to go
    std::int32_t next_rest_ = kFirstRest;
};

}  // namespace paceline

// PassWorth: how probable a path must be for another sequential pass of the draft after it.
//
// In sequential decoding the target waits while the draft computes. A pass after a path that is
// right with probability p adds an accepted token with probability p x h, where h is how often a
// candidate is right if all above it are. It costs its own time and that of one more row, in which
// the target could have decoded. So it pays where
//
//     p h >= (pass + row) / (time per token of the text)
//
// The times are running means measured in this request; p is the draft's own estimate. The first
// pass of a round is always made and is not measured: it also reads the tokens committed since, and
// its weights may have left the cache, so it takes longer than a further pass. Before the first
// measured pass and verdict no path is too improbable. The time of a row cannot be measured here; a
// fixed share of the time between verdicts is used instead.
// Pure; one per request.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace paceline {

class PassWorth {
public:
    using Micros = std::chrono::microseconds;

    static constexpr float kHit = 0.5F;  // h, where it matters: after doubtful candidates
    // The same for a drawn token: the draft's log_prob then measures the lead under its own noise,
    // which is about twice too high (best least reach 0.35 greedy, 0.7 at temperature 0.8).
    static constexpr float kHitOfDraws = 0.25F;
    static constexpr float kRowShare = 0.05F;  // of the time between verdicts, for a row
    static constexpr float kNew = 0.1F;        // weight of the newest time
    static constexpr float kOutlier = 3.0F;    // a longer time counts as so many of the mean
    static constexpr float kMost = 0.75F;      // more probable candidates are always expanded

    explicit PassWorth(bool greedy = true) : hit_{greedy ? kHit : kHitOfDraws} {}

    /// A verdict came at this time and committed so many tokens.
    void verified(Micros at, int tokens) {
        if (last_ && tokens > 0) {
            const auto since = static_cast<float>((at - *last_).count());
            learn(between_, since);
            learn(token_, since / static_cast<float>(tokens));
        }
        last_ = at;
        first_ = true;
    }
    /// A pass of this round took so long.
    void passed(Micros took) {
        if (!std::exchange(first_, false)) learn(pass_, static_cast<float>(took.count()));
    }

    /// The least probability of a path that another pass pays after; 0: not known yet.
    [[nodiscard]] float reach_min() const {
        if (token_ <= 0.0F || pass_ <= 0.0F) return 0.0F;
        return std::min((pass_ + kRowShare * between_) / (hit_ * token_), kMost);
    }

private:
    static void learn(float& mean, float value) {
        if (mean <= 0.0F) {
            mean = value;
        } else {
            mean += kNew * (std::min(value, kOutlier * mean) - mean);
        }
    }

    float hit_;
    std::optional<Micros> last_;  // verdict
    bool first_ = true;           // no pass yet in this round
    float between_ = 0.0F;        // verdicts, microseconds
    float token_ = 0.0F;          // of the text
    float pass_ = 0.0F;
};

}  // namespace paceline

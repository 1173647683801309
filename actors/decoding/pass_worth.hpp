// PassWorth: how probable a path must be for another sequential pass of the draft after it.
//
// In sequential decoding the target waits while the draft thinks. A pass after a path that is right with
// probability p adds a token to the wave with probability p x h, where h says how often a candidate is
// right if all above it are. It costs its own time and that of one row more, in which the text
// would have gone on as well. So it pays where
//
//     p h >= (pass + row) / (time per token of the text)
//
// The times are running means of what this request saw, whatever the machine and the models are;
// p is what the draft believes. The first pass of a round is made in any case, reads what was
// committed meanwhile and may find its weights gone from the cache: it is not what a further one
// costs. Until there is a pass and a verdict to measure nothing is too improbable. What a row costs is not seen here: a part of the time between verdicts stands for it.
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
    // The same for a draw: what a draft believes of it is how far ahead it is in its own race under
    // the noise, twice too sure (best least reach 0.35 greedy, 0.7 at temperature 0.8).
    static constexpr float kHitOfDraws = 0.25F;
    static constexpr float kRowShare = 0.05F;  // of the time between verdicts, for a row
    static constexpr float kNew = 0.1F;        // weight of the newest time
    static constexpr float kOutlier = 3.0F;    // a longer time counts as so many of the mean
    static constexpr float kMost = 0.75F;      // a surer candidate is always followed up

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

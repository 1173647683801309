// Stop policies: when a draft ends a chain. Each is a published rule; they may be combined.
//
//   fixed length         DraftLength, not adaptive: gamma tokens per round
//   adaptive length      DraftLength: all were right: +2, else -1, at least 1 (assisted generation)
//   drawn length         ThompsonLength (thompson_length.hpp): by Thompson sampling (EESD)
//   chain confidence     ChainStop: after a token less probable than this (Draft & Verify)
//   running product      ChainStop: after a path less probable than this (AdaSPEED)
//   adaptive threshold   AdaptiveThreshold: the threshold follows a target rate of accepted
//                        candidates (Draft & Verify; AdaSPEED's appendix A)
//
// The token at which a chain stops is still proposed; none is drafted after it. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ipc/base/limits.hpp"

namespace paceline {

class DraftLength {
public:
    DraftLength(std::int32_t length, bool adaptive) : length_{length}, adaptive_{adaptive} {}

    [[nodiscard]] std::int32_t now() const { return length_; }
    /// A verdict: of a path of `could` candidates, the first `accepted` were right.
    void verified(std::int32_t accepted, std::int32_t could) {
        if (!adaptive_ || could <= 0) return;
        length_ = accepted >= could ? std::min<std::int32_t>(length_ + 2, kGammaMax)
                                    : std::max(length_ - 1, 1);
    }

private:
    std::int32_t length_;
    bool adaptive_;
};

struct ChainStop {
    float confidence_min = 0.0F;  // 0: no such stop
    float product_min = 0.0F;

    /// Whether nothing is drafted after a token of this probability at the end of such a path.
    [[nodiscard]] bool ends_behind(float log_prob, float path_log_prob) const {
        return (confidence_min > 0.0F && log_prob < std::log(confidence_min)) ||
               (product_min > 0.0F && path_log_prob < std::log(product_min));
    }
};

struct ThresholdOptions {
    double start = 0.6;
    double target = 0.9;  // accepted of the drafted candidates
    double beta1 = 0.5;   // of the mean rate, kept at each verdict
    double beta2 = 0.9;   // of the threshold, kept at each verdict
    double step = 0.01;
};

/// The threshold of a ChainStop: higher (shorter chains) while too few candidates are accepted,
/// lower while enough are. One per stop rule: a probability of a token and one of a path have
/// different scales. Kept across requests, since a verdict moves it by (1 - beta2) step only.
class AdaptiveThreshold {
public:
    static constexpr double kLeast = 0.01;
    static constexpr double kMost = 0.999;

    explicit AdaptiveThreshold(const ThresholdOptions& options)
        : options_{options}, now_{std::clamp(options.start, kLeast, kMost)} {}

    [[nodiscard]] double now() const { return now_; }
    /// A verdict: the first `accepted` of a chain of `drafted` candidates were right.
    /// `reached_limit`: the chain ended at the maximum length and not by the threshold, which is
    /// then not lowered.
    void verified(std::int32_t accepted, std::int32_t drafted, bool reached_limit) {
        if (drafted <= 0) return;
        rate_ = options_.beta1 * rate_ + (1.0 - options_.beta1) * accepted / drafted;
        double wanted = now_;
        if (rate_ < options_.target) {
            wanted += options_.step;
        } else if (!reached_limit) {
            wanted -= options_.step;
        }
        now_ = std::clamp(options_.beta2 * now_ + (1.0 - options_.beta2) * wanted, kLeast, kMost);
    }

private:
    ThresholdOptions options_;
    double rate_ = 0.0;  // begins at 0, as published
    double now_;
};

}  // namespace paceline

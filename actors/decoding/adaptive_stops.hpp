// AdaptiveStops: the thresholds at which a draft's chains end, for all requests of its process.
//
//     reach_min from AdaptiveThreshold::kLeast on     AdaSPEED: of a path; it adapts
//     else confidence_min                             Draft & Verify: of a token; it adapts
//
// Without threshold_adapts both stay what the rule says. Pure; any number of requests share one, in
// the actor's loop.
#pragma once

#include <cstdint>
#include <optional>

#include "actors/decoding/growth_rule.hpp"
#include "actors/decoding/stop_policy.hpp"

namespace paceline {

class AdaptiveStops {
public:
    explicit AdaptiveStops(const GrowthRule& rule)
        : fixed_{.confidence_min = rule.confidence_min, .product_min = rule.draft_reach_min} {
        if (!rule.threshold_adapts) return;
        threshold_.emplace(
            ThresholdOptions{.start = of_path() ? fixed_.product_min : fixed_.confidence_min,
                             .target = rule.acceptance_target});
    }

    [[nodiscard]] ChainStop now() const {
        ChainStop stop = fixed_;
        if (!threshold_) return stop;
        (of_path() ? stop.product_min : stop.confidence_min) =
            static_cast<float>(threshold_->now());
        return stop;
    }
    /// A verdict: the first `accepted` of a chain of `drafted` candidates were right. `stopped`: a
    /// threshold ended the chain, not its length or the time that there was.
    void verified(std::int32_t accepted, std::int32_t drafted, bool stopped) {
        if (threshold_) threshold_->verified(accepted, drafted, !stopped);
    }

private:
    /// Smaller ones are there in any case, so that a tree does not grow without end.
    [[nodiscard]] bool of_path() const {
        return fixed_.product_min >= static_cast<float>(AdaptiveThreshold::kLeast);
    }

    ChainStop fixed_;
    std::optional<AdaptiveThreshold> threshold_;
};

}  // namespace paceline

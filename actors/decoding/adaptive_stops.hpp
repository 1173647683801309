// AdaptiveStops: the thresholds at which a draft's chains end, for all requests of its process.
//
//     confidence_min > 0     Draft & Verify: of a token; it adapts, reach_min stays
//     else reach_min         AdaSPEED: of a path; it adapts
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
        threshold_.emplace(ThresholdOptions{
            .start = of_token() ? fixed_.confidence_min : fixed_.product_min,
            .target = rule.acceptance_target});
    }

    [[nodiscard]] ChainStop now() const {
        ChainStop stop = fixed_;
        if (!threshold_) return stop;
        (of_token() ? stop.confidence_min : stop.product_min) =
            static_cast<float>(threshold_->now());
        return stop;
    }
    /// A verdict: the first `accepted` of a chain of `drafted` candidates were right. `stopped`: a
    /// threshold ended the chain, not its length or the time that there was.
    void verified(std::int32_t accepted, std::int32_t drafted, bool stopped) {
        if (threshold_) threshold_->verified(accepted, drafted, !stopped);
    }

private:
    [[nodiscard]] bool of_token() const { return fixed_.confidence_min > 0.0F; }

    ChainStop fixed_;
    std::optional<AdaptiveThreshold> threshold_;
};

}  // namespace paceline

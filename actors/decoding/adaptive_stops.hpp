// AdaptiveStops: the thresholds at which a draft's chains end, for all requests of its process. At
// most one of them adapts:
//
//     product_min from AdaptiveThreshold::kLeast on     of a path (AdaSPEED)
//     else confidence_min, if there is one              of a token (Draft & Verify)
//
// Pure; any number of requests share one, in the actor's loop.
#pragma once

#include <cstdint>
#include <optional>

#include "actors/decoding/growth_rule.hpp"
#include "actors/decoding/stop_policy.hpp"

namespace paceline {

class AdaptiveStops {
public:
    /// `acceptance_target`: the share of accepted candidates that the threshold which adapts moves
    /// towards; nothing: both thresholds stay as they are.
    AdaptiveStops(const ChainStop& stop, std::optional<double> acceptance_target)
        : now_{stop},
          adapting_{stop.product_min >= static_cast<float>(AdaptiveThreshold::kLeast)
                        ? &ChainStop::product_min
                        : &ChainStop::confidence_min} {
        if (!acceptance_target || threshold() <= 0.0F) return;
        adaptive_.emplace(ThresholdOptions{.start = threshold(), .target = *acceptance_target});
        now_.*adapting_ = static_cast<float>(adaptive_->now());
    }
    explicit AdaptiveStops(const GrowthRule& rule)
        : AdaptiveStops{
              {.confidence_min = rule.confidence_min, .product_min = rule.draft_reach_min},
              rule.threshold_adapts ? std::optional{rule.acceptance_target} : std::nullopt} {}

    [[nodiscard]] const ChainStop& now() const { return now_; }
    /// The threshold in now() that adapts, or would with an acceptance target; 0: there is none.
    [[nodiscard]] float threshold() const { return now_.*adapting_; }
    /// A verdict: the first `accepted` of a chain of `drafted` candidates were right. `stopped`: a
    /// threshold ended the chain, not its length or the time that there was.
    void verified(std::int32_t accepted, std::int32_t drafted, bool stopped) {
        if (!adaptive_) return;
        adaptive_->verified(accepted, drafted, !stopped);
        now_.*adapting_ = static_cast<float>(adaptive_->now());
    }

private:
    ChainStop now_;
    float ChainStop::*adapting_;
    std::optional<AdaptiveThreshold> adaptive_ = {};
};

}  // namespace paceline

// SpeculationLimits: how much a client lets a pipeline speculate for its answer. They change what
// is tried, never the text. A session refuses a gamma above the pipeline's own; thresholds that
// are wider than those of the pipeline have no effect.
// Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "actors/decoding/stop_policy.hpp"

namespace paceline {

struct SpeculationLimits {
    /// False: no draft, exit, head or lookup works for the answer, and each batch has its root
    /// alone: plain decoding by the pipeline's segments.
    bool on = true;
    std::int32_t gamma = 0;         // candidates after each other, at most; 0: as the pipeline
    float verify_reach_min = 0.0F;  // rows of less probable paths are not verified
    float draft_reach_min = 0.0F;   // after a path less probable than this nothing is drafted
    float confidence_min = 0.0F;    // after a token less probable than this nothing is drafted

    /// Candidates below the root that are of use where `room` of them could be committed.
    [[nodiscard]] std::int32_t depth_max(std::int32_t room) const {
        return gamma > 0 ? std::min(room, gamma) : room;
    }
    /// The stricter of the pipeline's rule and this one.
    [[nodiscard]] ChainStop stricter(ChainStop stop) const {
        return {.confidence_min = std::max(stop.confidence_min, confidence_min),
                .product_min = std::max(stop.product_min, draft_reach_min)};
    }

    friend bool operator==(const SpeculationLimits&, const SpeculationLimits&) = default;
};

}  // namespace paceline

// Stop policies: how long a draft goes on before it lets the target speak. Small parts that may
// be combined; each is a published rule.
//
//   fixed length         DraftLength, not adaptive: gamma tokens per round
//   adaptive length      DraftLength: all were right: +2, else -1, at least 1 (assisted generation)
//   chain confidence     ChainStop: after a token less probable than this (Draft & Verify)
//   running product      ChainStop: after a path less probable than this (AdaSPEED)
//
// The token at which a chain stops is proposed all the same; nothing is drafted after it. Pure.
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
    [[nodiscard]] bool ends_behind(float log_prob, float reach) const {
        return (confidence_min > 0.0F && log_prob < std::log(confidence_min)) ||
               (product_min > 0.0F && reach < std::log(product_min));
    }
};

}  // namespace paceline

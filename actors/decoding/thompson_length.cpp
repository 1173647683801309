#include "actors/decoding/thompson_length.hpp"

#include "ipc/base/check.hpp"

namespace paceline {

ThompsonLength::ThompsonLength(const ThompsonOptions& options)
    : options_{options}, random_{options.seed} {
    PACE_CHECK(options.longest >= 1, "chains of no length");
    PACE_CHECK(options.decay >= 0.0 && options.decay <= 1.0, "a decay that is no part of a count");
    begin_round();
}

void ThompsonLength::verified(std::int32_t accepted, std::int32_t could) {
    if (could > 0) {
        accepted_ = options_.decay * accepted_ + accepted;
        rejected_ = options_.decay * rejected_ + (accepted < could ? 1.0 : 0.0);
    }
    begin_round();
}

/// From a Beta distribution: the share of the first of two draws from gamma distributions.
double ThompsonLength::draw_theta() {
    const double kept = std::gamma_distribution{1.0 + accepted_}(random_);
    const double ended = std::gamma_distribution{1.0 + rejected_}(random_);
    return kept + ended > 0.0 ? kept / (kept + ended) : 0.5;
}

void ThompsonLength::begin_round() {
    now_ = 1;
    while (now_ < options_.longest) {
        const double theta = draw_theta();
        if (std::uniform_real_distribution<>{}(random_) >= theta) return;
        ++now_;
    }
}

}  // namespace paceline

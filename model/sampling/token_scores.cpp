#include "model/sampling/token_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

void RowScores::read(std::span<const float> logits, std::int32_t top, SamplerScratch& scratch) {
    PACE_CHECK(top >= 0 && top <= kTopScoresMax, "as many tokens as a message carries");
    logits_.assign(logits.begin(), logits.end());
    row_ = likeliest_tokens(logits_, std::max(top, 1), scratch);
    if (top == 0) row_.tokens.clear();
}

TokenScores RowScores::of(TokenId token) const {
    const auto at = static_cast<std::size_t>(token);
    PACE_CHECK(token >= 0 && at < logits_.size(), "a token of the vocabulary");
    const auto value = [](float logit) { return std::isnan(logit) ? -kInfinity : logit; };
    const float own = value(logits_[at]);
    TokenScores scores{.log_prob = log_prob_of(own, row_), .rank = 0};
    for (const float logit : logits_) scores.rank += logit > own ? 1 : 0;
    for (std::size_t i = 0; i < at; ++i) scores.rank += value(logits_[i]) == own ? 1 : 0;
    for (const Candidate& each : row_.tokens) scores.top.push_back({each.token, each.log_prob});
    return scores;
}

}  // namespace paceline

#include "model/sampling/sampling.hpp"

#include <limits>

#include "model/sampling/noise_layout.hpp"
#include "model/sampling/penalties.hpp"
#include "model/sampling/race.hpp"

namespace paceline {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The first token whose logit is `value`, by way of the group maxima.
TokenId first_with(std::span<const float> logits, std::span<const float> group_max, float value) {
    std::size_t group = 0;
    while (group < group_max.size() && group_max[group] != value) ++group;
    const std::size_t tile = group / noise::kColumns;
    std::size_t token = tile * noise::kTileTokens;
    while (token < logits.size() && logits[token] != value) ++token;
    PACE_CHECK(token < logits.size(), "the largest logit is in the row");
    return static_cast<TokenId>(token);
}

}  // namespace

void SamplerScratch::fit(int vocab) {
    const auto groups = static_cast<std::size_t>(groups_of(vocab));
    const auto tokens = static_cast<std::size_t>(vocab);
    if (group_max.size() < groups) {
        group_max.resize(groups);
        race.resize(groups);
        bound.resize(groups);
    }
    if (counts.size() < tokens) {
        counts.resize(tokens, 0);
        weights.resize(tokens);
        collected.resize(tokens);
    }
}

std::optional<TokenId> argmax(std::span<const float> logits, SamplerScratch& scratch) {
    const int vocab = static_cast<int>(logits.size());
    PACE_CHECK(vocab > 0, "a row of logits has tokens");
    scratch.fit(vocab);
    const float top = scratch.kernels->fold(logits.data(), vocab, scratch.group_max.data());
    if (top == -kInfinity) return std::nullopt;
    return first_with(logits,
                      {scratch.group_max.data(), static_cast<std::size_t>(groups_of(vocab))}, top);
}

std::optional<TokenId> sample(std::span<float> logits,
                              Position position,
                              const SeenTokens& seen,
                              const SamplingParams& params,
                              SamplerScratch& scratch,
                              const TokenMask* mask) {
    PACE_CHECK(position >= 0, "a token has a position");
    const int vocab = static_cast<int>(logits.size());
    scratch.fit(vocab);
    apply_bias_and_penalties(logits, seen, params, scratch);
    if (mask != nullptr) mask->apply(logits);
    if (params.greedy()) return argmax(logits, scratch);

    const std::optional<DrawArgs> race = prepare_race(logits, position, params, scratch);
    if (!race) return std::nullopt;
    const Drawn drawn = scratch.kernels->draw(*race);
    PACE_CHECK(drawn.token >= 0, "the token with the largest logit is always kept");
    return drawn.token;
}

}  // namespace paceline

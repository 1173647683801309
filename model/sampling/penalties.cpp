#include "model/sampling/penalties.hpp"

#include <algorithm>

namespace paceline {

namespace {

std::span<const TokenId> last_of(std::span<const TokenId> tokens, std::size_t count) {
    return tokens.last(std::min(count, tokens.size()));
}

void count_tokens(std::span<const TokenId> tokens, SamplerScratch& scratch, std::size_t vocab) {
    for (const TokenId token : tokens) {
        PACE_CHECK(token >= 0 && static_cast<std::size_t>(token) < vocab,
                   "a seen token is of the vocabulary");
        if (scratch.counts[static_cast<std::size_t>(token)]++ == 0) scratch.seen.push_back(token);
    }
}

}  // namespace

void apply_bias_and_penalties(std::span<float> logits,
                              const SeenTokens& seen,
                              const SamplingParams& params,
                              SamplerScratch& scratch) {
    for (const auto& [token, bias] : params.logit_bias) {
        PACE_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits.size(),
                   "a biased token is of the vocabulary");
        logits[static_cast<std::size_t>(token)] += bias;
    }
    if (!params.has_penalties() || params.penalty_window == 0) return;

    const std::size_t text = seen.committed.size() + seen.path.size();
    const std::size_t counting =
        text - std::min(text, static_cast<std::size_t>(params.penalty_begin));
    const std::size_t window =
        params.penalty_window < 0
            ? counting
            : std::min(counting, static_cast<std::size_t>(params.penalty_window));
    scratch.seen.clear();
    const std::span<const TokenId> path = last_of(seen.path, window);
    count_tokens(path, scratch, logits.size());
    count_tokens(last_of(seen.committed, window - path.size()), scratch, logits.size());
    for (const TokenId token : scratch.seen) {
        const auto id = static_cast<std::size_t>(token);
        const auto times = static_cast<float>(scratch.counts[id]);
        scratch.counts[id] = 0;
        const float raw = logits[id];
        const float repeated =
            raw > 0.0f ? raw / params.repetition_penalty : raw * params.repetition_penalty;
        logits[id] = repeated - (times * params.frequency_penalty + params.presence_penalty);
    }
}

}  // namespace paceline

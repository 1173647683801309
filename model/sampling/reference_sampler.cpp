#include "model/sampling/reference_sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "model/sampling/fixed_math.hpp"
#include "model/sampling/gumbel_noise.hpp"

namespace paceline {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> with_bias_and_penalties(std::span<const float> raw,
                                           const SeenTokens& seen,
                                           const SamplingParams& params) {
    std::vector<float> logits(raw.begin(), raw.end());
    for (const auto& [token, bias] : params.logit_bias)
        logits[static_cast<std::size_t>(token)] += bias;

    std::vector<TokenId> text(seen.committed.begin(), seen.committed.end());
    text.insert(text.end(), seen.path.begin(), seen.path.end());
    const std::size_t window =
        params.penalty_window < 0
            ? text.size()
            : std::min(text.size(), static_cast<std::size_t>(params.penalty_window));
    std::map<TokenId, int> times;
    for (std::size_t i = text.size() - window; i < text.size(); ++i) ++times[text[i]];
    for (const auto& [token, count] : times) {
        float& logit = logits[static_cast<std::size_t>(token)];
        logit =
            logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
        logit -= static_cast<float>(count) * params.frequency_penalty + params.presence_penalty;
    }
    for (float& logit : logits) {
        if (std::isnan(logit)) logit = -kInfinity;
        if (logit == kInfinity && !params.greedy()) logit = std::numeric_limits<float>::max();
    }
    return logits;
}

}  // namespace

std::vector<TokenId> reference_kept(std::span<const float> logits, const SamplingParams& params) {
    std::vector<TokenId> ranked(logits.size());
    std::iota(ranked.begin(), ranked.end(), 0);
    std::erase_if(ranked,
                  [&](TokenId t) { return logits[static_cast<std::size_t>(t)] == -kInfinity; });
    std::stable_sort(ranked.begin(), ranked.end(), [&](TokenId a, TokenId b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    if (ranked.empty()) return ranked;
    const float top = logits[static_cast<std::size_t>(ranked.front())];
    const auto z = [&](TokenId t) {
        return (logits[static_cast<std::size_t>(t)] - top) * (1.0f / params.temperature);
    };
    if (params.top_k > 0 && ranked.size() > static_cast<std::size_t>(params.top_k)) {
        ranked.resize(static_cast<std::size_t>(params.top_k));
    }
    if (params.top_p < 1.0f) {
        std::uint64_t total = 0;
        for (const TokenId t : ranked) total += weight_of(z(t));
        const double need = static_cast<double>(params.top_p) * static_cast<double>(total);
        std::uint64_t sum = 0;
        std::size_t kept = 0;
        do {
            sum += weight_of(z(ranked[kept++]));
        } while (static_cast<double>(sum) < need);
        ranked.resize(kept);
    }
    if (params.min_p > 0.0f) {
        std::erase_if(ranked, [&](TokenId t) { return !(z(t) >= fixed_log(params.min_p)); });
    }
    return ranked;
}

std::optional<TokenId> reference_sample(std::span<const float> raw,
                                        Position position,
                                        const SeenTokens& seen,
                                        const SamplingParams& params) {
    const std::vector<float> logits = with_bias_and_penalties(raw, seen, params);
    const auto largest = std::max_element(logits.begin(), logits.end());  // the first of equals
    if (*largest == -kInfinity) return std::nullopt;
    if (params.greedy()) return static_cast<TokenId>(largest - logits.begin());

    std::vector<TokenId> kept = reference_kept(logits, params);
    std::sort(kept.begin(), kept.end());
    TokenId best = -1;
    float best_score = -kInfinity;
    for (const TokenId t : kept) {
        const float z =
            (logits[static_cast<std::size_t>(t)] - *largest) * (1.0f / params.temperature);
        const float score = z + gumbel(params.seed, position, t);
        if (score > best_score) {
            best = t;
            best_score = score;
        }
    }
    return best;
}

}  // namespace paceline

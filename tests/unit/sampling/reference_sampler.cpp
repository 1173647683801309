#include "tests/unit/sampling/reference_sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "model/sampling/fixed_math.hpp"
#include "tests/unit/sampling/gumbel_noise.hpp"

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
    for (std::size_t i = text.size() - window; i < text.size(); ++i) {
        if (i >= static_cast<std::size_t>(params.penalty_begin)) ++times[text[i]];
    }
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

std::vector<Candidate> reference_candidates(std::span<const float> raw,
                                            Position position,
                                            const SeenTokens& seen,
                                            const SamplingParams& params,
                                            int count) {
    const std::vector<float> logits = with_bias_and_penalties(raw, seen, params);
    const float largest = *std::max_element(logits.begin(), logits.end());
    if (largest == -kInfinity) return {};
    const float top = std::min(largest, std::numeric_limits<float>::max());
    std::vector<Candidate> race;  // log_prob: the score
    if (params.greedy()) {
        for (std::size_t t = 0; t < logits.size(); ++t) {
            if (logits[t] > -kInfinity) race.push_back({static_cast<TokenId>(t), logits[t]});
        }
    } else {
        for (const TokenId t : reference_kept(logits, params)) {
            const float z =
                (logits[static_cast<std::size_t>(t)] - top) * (1.0f / params.temperature);
            const float score = z + gumbel(params.seed, position, t);
            if (score > -kInfinity) race.push_back({t, score});
        }
    }
    std::sort(race.begin(), race.end(), [](const Candidate& a, const Candidate& b) {
        return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.token < b.token;
    });
    const float best = params.greedy() ? top : race.front().log_prob;
    const float low = params.greedy() ? -kInfinity : best - kRivalMargin;
    double total = 0.0;
    for (Candidate& candidate : race) {
        const float behind = std::min(candidate.log_prob, std::numeric_limits<float>::max()) - best;
        if (candidate.log_prob >= low) total += std::exp(static_cast<double>(behind));
        candidate.log_prob = behind;
    }
    race.resize(std::min(race.size(), static_cast<std::size_t>(count)));
    for (Candidate& candidate : race)
        candidate.log_prob =
            static_cast<float>(static_cast<double>(candidate.log_prob) - std::log(total));
    return race;
}

std::vector<double> reference_probabilities(std::span<const float> raw,
                                            const SeenTokens& seen,
                                            const SamplingParams& params) {
    const std::vector<float> logits = with_bias_and_penalties(raw, seen, params);
    const auto largest = std::max_element(logits.begin(), logits.end());
    if (*largest == -kInfinity) return {};
    std::vector<double> result(logits.size(), 0.0);
    if (params.greedy()) {
        result[static_cast<std::size_t>(largest - logits.begin())] = 1.0;
        return result;
    }
    double total = 0.0;
    for (const TokenId t : reference_kept(logits, params)) {
        const auto id = static_cast<std::size_t>(t);
        const float z = (logits[id] - *largest) * (1.0f / params.temperature);
        result[id] = std::exp(static_cast<double>(z));
        total += result[id];
    }
    for (double& p : result) p /= total;
    return result;
}

}  // namespace paceline

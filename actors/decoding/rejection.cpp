#include "actors/decoding/rejection.hpp"

#include <algorithm>
#include <numeric>

#include "ipc/base/check.hpp"
#include "model/sampling/counter_rng.hpp"
#include "model/sampling/noise_layout.hpp"

namespace paceline {
namespace {

// The third counter word: different from all uses in noise_layout.hpp.
constexpr std::uint32_t kUseRejection = 3;
constexpr std::uint32_t kUseDrawing = 4;
static_assert(noise::kUseRace < kUseRejection && noise::kUsePick < kUseRejection &&
              noise::kUseRest < kUseRejection);

// Summed again each time: a running difference could leave a rounding error instead of 0.
double sum_of(std::span<const double> weights) {
    return std::accumulate(weights.begin(), weights.end(), 0.0);
}

/// p becomes max(p - q, 0). False if nothing would be left: then p is unchanged.
bool subtract(std::span<double> p, double p_sum, std::span<const double> q, double q_sum) {
    const auto rest = [&](std::size_t i) { return std::max(p[i] / p_sum - q[i] / q_sum, 0.0); };
    bool any = false;
    for (std::size_t i = 0; i < p.size() && !any; ++i) any = rest(i) > 0.0;
    if (!any) return false;
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = rest(i);
    return true;
}

}  // namespace

double CounterChance::uniform() {
    const PhiloxKey key{static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)};
    const std::uint32_t use = use_ == Use::Drawing ? kUseDrawing : kUseRejection;
    const PhiloxCounter words =
        philox({decision_++, static_cast<std::uint32_t>(position_), use, salt_}, key);
    const std::uint64_t bits = (std::uint64_t{words[0]} << 21U) | (words[1] >> 11U);
    return static_cast<double>(bits) * 0x1p-53;
}

bool CounterChance::happens(double probability) {
    return uniform() < probability;
}

std::size_t CounterChance::pick(std::span<const double> weights) {
    double left = uniform() * sum_of(weights);
    std::size_t last = weights.size();
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i] <= 0.0) continue;
        last = i;
        if (left < weights[i]) break;
        left -= weights[i];
    }
    PACE_CHECK(last < weights.size(), "a draw from nothing");
    return last;  // rounding may run past the end: the last one that can be drawn
}

Choice choose(std::span<double> p, const CandidateTokens& candidates, Chance& chance) {
    const std::span<double> q = candidates.q;
    PACE_CHECK(q.empty() || q.size() == p.size(), "p and q of different vocabularies");
    for (std::size_t i = 0; i < candidates.tokens.size(); ++i) {
        const auto x = static_cast<std::size_t>(candidates.tokens[i]);
        PACE_CHECK(x < p.size(), "a candidate outside of the vocabulary");
        const double p_sum = sum_of(p);
        if (q.empty()) {
            if (chance.happens(p[x] / p_sum)) return {candidates.tokens[i], i};
            p[x] = 0.0;
            continue;
        }
        const double q_sum = sum_of(q);
        PACE_CHECK(q[x] > 0.0, "a candidate that cannot have been drawn from its q");
        if (chance.happens((p[x] / p_sum) / (q[x] / q_sum))) return {candidates.tokens[i], i};
        // Equal but for rounding: then it could not be rejected.
        if (!subtract(p, p_sum, q, q_sum)) return {candidates.tokens[i], i};
        q[x] = 0.0;
    }
    for (std::size_t i = 0; i < candidates.deterministic.size(); ++i) {
        const auto x = static_cast<std::size_t>(candidates.deterministic[i]);
        PACE_CHECK(x < p.size(), "a candidate outside of the vocabulary");
        if (chance.happens(p[x] / sum_of(p))) {
            return {candidates.deterministic[i], candidates.tokens.size() + i};
        }
        p[x] = 0.0;
    }
    return {static_cast<TokenId>(chance.pick(p)), std::nullopt};
}

}  // namespace paceline

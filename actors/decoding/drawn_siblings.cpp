#include "actors/decoding/drawn_siblings.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

std::vector<TokenId> DrawnSiblings::tokens() const {
    std::vector<TokenId> tokens;
    for (const msg::TokenWeight& one : std::span{support}.first(drawn)) tokens.push_back(one.token);
    return tokens;
}

bool DrawnSiblings::has(TokenId token) const {
    const auto siblings = std::span{support}.first(drawn);
    return std::any_of(siblings.begin(), siblings.end(),
                       [token](const msg::TokenWeight& one) { return one.token == token; });
}

void DrawnSiblings::spread(std::vector<double>& q, std::size_t vocab) const {
    q.assign(vocab, 0.0);
    for (const msg::TokenWeight& one : support) {
        const auto token = static_cast<std::size_t>(one.token);
        PACE_CHECK(token < vocab, "a candidate was drawn from another vocabulary");
        q[token] = one.weight;
    }
}

DrawnSiblingsPtr draw_siblings(std::span<float> logits,
                               const SeenTokens& seen,
                               const SamplingParams& params,
                               const DrawOrder& order,
                               SamplerScratch& scratch) {
    std::vector<msg::TokenWeight> support;
    for (const TokenProbability& one : most_probable(logits, seen, params, order.top, scratch))
        support.push_back({one.token, one.p});
    if (support.empty()) return nullptr;
    CounterChance counted{params.seed, order.position, CounterChance::Use::Drawing,
                          static_cast<std::uint32_t>(order.parent)};
    Chance& chance = order.chance == nullptr ? counted : *order.chance;
    return std::make_shared<const DrawnSiblings>(
        draw_siblings(std::move(support), order.count, chance));
}

DrawnSiblings draw_siblings(std::vector<msg::TokenWeight> support,
                            std::size_t count,
                            Chance& chance) {
    PACE_CHECK(count >= 1 && !support.empty() && support.size() <= kDrawnSupportMax,
               "siblings are drawn from 1 .. kDrawnSupportMax tokens");
    DrawnSiblings siblings{.support = std::move(support)};
    std::vector<double> weights;
    for (; siblings.drawn < std::min(count, siblings.support.size()); ++siblings.drawn) {
        weights.clear();
        for (std::size_t i = siblings.drawn; i < siblings.support.size(); ++i)
            weights.push_back(siblings.support[i].weight);
        std::swap(siblings.support[siblings.drawn],
                  siblings.support[siblings.drawn + chance.pick(weights)]);
    }
    return siblings;
}

}  // namespace paceline

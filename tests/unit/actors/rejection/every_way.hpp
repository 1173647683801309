// EveryWay: chance that falls in every way, one after the other, each with its probability: the
// exact distribution of whatever is decided by it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/rejection.hpp"
#include "ipc/base/ids.hpp"

namespace paceline::testing {

using Weights = std::vector<double>;
using Distribution = std::map<std::vector<TokenId>, double>;

/// Takes one way after the other through all decisions that have more than one.
class EveryWay final : public Chance {
public:
    [[nodiscard]] bool happens(double probability) override {
        const double p = std::clamp(probability, 0.0, 1.0);
        return decide({p, 1.0 - p}) == 0;
    }
    [[nodiscard]] std::size_t pick(std::span<const double> weights) override {
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        REQUIRE(sum > 0.0);
        Weights normalised;
        for (const double weight : weights) normalised.push_back(weight / sum);
        return decide(normalised);
    }
    [[nodiscard]] double probability() const {
        double product = 1.0;
        for (const Decision& decision : way_) product *= decision.options[decision.taken];
        return product;
    }
    /// False when all ways were taken.
    [[nodiscard]] bool next() {
        depth_ = 0;
        while (!way_.empty()) {
            Decision& last = way_.back();
            ++last.taken;
            if (skip_impossible(last)) return true;
            way_.pop_back();
        }
        return false;
    }

private:
    struct Decision {
        Weights options;
        std::size_t taken = 0;
    };
    static bool skip_impossible(Decision& decision) {
        while (decision.taken < decision.options.size() &&
               decision.options[decision.taken] <= 0.0) {
            ++decision.taken;
        }
        return decision.taken < decision.options.size();
    }
    std::size_t decide(Weights options) {
        if (depth_ == way_.size()) {
            way_.push_back({std::move(options), 0});
            REQUIRE(skip_impossible(way_.back()));
        }
        return way_[depth_++].taken;
    }
    std::vector<Decision> way_;
    std::size_t depth_ = 0;
};

inline Distribution distribution_of(const std::function<std::vector<TokenId>(Chance&)>& draw) {
    Distribution distribution;
    EveryWay chance;
    do {
        const std::vector<TokenId> text = draw(chance);
        distribution[text] += chance.probability();
    } while (chance.next());
    return distribution;
}

/// Of one token that is drawn by weights.
inline Distribution distribution_of_weights(const Weights& weights) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    Distribution distribution;
    for (std::size_t i = 0; i < weights.size(); ++i)
        distribution[{static_cast<TokenId>(i)}] = weights[i] / sum;
    return distribution;
}

/// Not normalised; with `zeros` some of them are 0.
inline Weights random_weights(std::mt19937_64& random, std::size_t vocab, bool zeros = true) {
    Weights weights(vocab);
    for (double& weight : weights)
        weight = zeros && random() % 4 == 0 ? 0.0 : static_cast<double>(1 + random() % 1000);
    weights[random() % vocab] = 500.0;
    return weights;
}

inline double distance(const Distribution& a, const Distribution& b) {
    double worst = 0.0;
    for (const Distribution* each : {&a, &b}) {
        for (const auto& [text, p] : *each) {
            const double other_a = a.contains(text) ? a.at(text) : 0.0;
            const double other_b = b.contains(text) ? b.at(text) : 0.0;
            worst = std::max(worst, std::abs(other_a - other_b));
        }
    }
    return worst;
}

}  // namespace paceline::testing

// The drawn tokens are distributed as the exact softmax says, after every combination of filters.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "model/sampling/sampling.hpp"

using namespace paceline;

namespace {

constexpr int kPositions = 200000;

/// Chi-square of the draws against `weights` (any scale; 0: must never be drawn), and its
/// degrees of freedom.
struct Fit {
    double chi_square = 0.0;
    int freedom = -1;
};

Fit fit(const std::vector<float>& logits,
        const std::vector<double>& weights,
        const SamplingParams& params) {
    SamplerScratch scratch;
    std::vector<int> counts(logits.size(), 0);
    std::vector<float> row;
    for (Position p = 0; p < kPositions; ++p) {
        row = logits;
        ++counts[static_cast<std::size_t>(*sample(row, p, {}, params, scratch))];
    }
    double total = 0.0;
    for (const double w : weights) total += w;
    Fit result;
    for (std::size_t t = 0; t < logits.size(); ++t) {
        if (weights[t] == 0.0) {
            CHECK(counts[t] == 0);
            continue;
        }
        const double expected = kPositions * weights[t] / total;
        REQUIRE(expected > 5.0);
        result.chi_square += (counts[t] - expected) * (counts[t] - expected) / expected;
        ++result.freedom;
    }
    return result;
}

/// Wilson-Hilferty: about the standard normal deviate of a chi-square value. 3.7 is exceeded
/// with probability 0.0001; the seeds are fixed, so a pass stays a pass.
double deviate(const Fit& f) {
    const double n = f.freedom;
    return (std::cbrt(f.chi_square / n) - (1.0 - 2.0 / (9.0 * n))) / std::sqrt(2.0 / (9.0 * n));
}

// Distinct, unordered, with gaps that put each filter's cut between two tokens.
const std::vector<float> kLogits{0.3f, 2.1f, -0.7f, 1.2f,  0.9f, -1.5f,
                                 2.6f, 0.0f, 1.7f,  -0.2f, 0.6f, -1.1f};

std::vector<double> softmax_weights(double temperature, double keep_from) {
    std::vector<double> weights;
    for (const float l : kLogits) {
        const auto logit = static_cast<double>(l);
        weights.push_back(logit > keep_from - 0.05 ? std::exp(logit / temperature) : 0.0);
    }
    return weights;
}

}  // namespace

TEST_CASE("draws follow the softmax at several temperatures") {
    for (const float t : {0.5f, 1.0f, 1.7f}) {
        const double exact = static_cast<double>(t);
        CHECK(deviate(fit(kLogits, softmax_weights(exact, -9.0), {.temperature = t, .seed = 1})) <
              3.7);
    }
}

TEST_CASE("draws follow the softmax of the tokens that the filters keep") {
    // Sorted: 2.6 2.1 1.7 1.2 0.9 0.6 0.3 0 -0.2 -0.7 -1.1 -1.5. At temperature 1 the masses
    // from the top are .331 .531 .666 .747 .808 .853 .886 .910 .931 .943 .951 ...
    struct Case {
        SamplingParams params;
        double temperature;
        double keep_from;
    };
    const std::vector<Case> cases{
        {{.temperature = 1.0f, .top_k = 5, .seed = 2}, 1.0, 0.9},
        {{.temperature = 1.0f, .top_p = 0.7f, .seed = 3}, 1.0, 1.2},
        {{.temperature = 1.0f, .min_p = 0.1f, .seed = 4}, 1.0, 0.3},  // ln 0.1 = -2.303
        {{.temperature = 1.0f, .top_k = 6, .top_p = 0.7f, .seed = 5}, 1.0, 1.7},
        {{.temperature = 1.0f, .top_k = 5, .min_p = 0.3f, .seed = 6}, 1.0, 1.7},  // ln .3 = -1.204
        {{.temperature = 2.0f, .top_k = 8, .min_p = 0.5f, .seed = 7}, 2.0, 1.7},
        {{.temperature = 0.7f, .top_p = 0.9f, .min_p = 0.01f, .seed = 8}, 0.7, 0.9},
        {{.temperature = 0.7f, .top_k = 11, .top_p = 0.9f, .min_p = 0.2f, .seed = 9}, 0.7, 1.7},
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
        CAPTURE(i);
        const Case& c = cases[i];
        CHECK(deviate(fit(kLogits, softmax_weights(c.temperature, c.keep_from), c.params)) < 3.7);
    }
}

TEST_CASE("draws over several tiles of equal logits are uniform") {
    const std::vector<float> logits(1500, 4.0f);
    CHECK(deviate(fit(logits, std::vector<double>(1500, 1.0), {.temperature = 1.0f, .seed = 10})) <
          3.7);
}

TEST_CASE("a bias of log 2 doubles the odds") {
    std::vector<double> weights = softmax_weights(1.0, -9.0);
    weights[3] *= 2.0;
    SamplingParams params{.temperature = 1.0f, .logit_bias = {{3, 0.693147f}}, .seed = 11};
    CHECK(deviate(fit(kLogits, weights, params)) < 3.7);
}

TEST_CASE("two near rows draw the same token nearly as often as any coupling could") {
    // The bound of the coupled draw: P(equal) >= (1 - tv) / (1 + tv).
    std::vector<float> other = kLogits;
    for (std::size_t t = 0; t < other.size(); t += 2) other[t] += 0.4f;
    double total_a = 0.0;
    double total_b = 0.0;
    for (std::size_t t = 0; t < other.size(); ++t) {
        total_a += std::exp(static_cast<double>(kLogits[t]));
        total_b += std::exp(static_cast<double>(other[t]));
    }
    double tv = 0.0;
    for (std::size_t t = 0; t < other.size(); ++t) {
        tv += 0.5 * std::fabs(std::exp(static_cast<double>(kLogits[t])) / total_a -
                              std::exp(static_cast<double>(other[t])) / total_b);
    }
    SamplerScratch scratch;
    const SamplingParams params{.temperature = 1.0f, .seed = 12};
    int equal = 0;
    for (Position p = 0; p < kPositions; ++p) {
        std::vector<float> a = kLogits;
        std::vector<float> b = other;
        equal += sample(a, p, {}, params, scratch) == sample(b, p, {}, params, scratch) ? 1 : 0;
    }
    CHECK(equal > kPositions * (1.0 - tv) / (1.0 + tv));
    CHECK(equal < kPositions * (1.0 - tv) + 1000);  // no coupling can do better
}

// The noise: its range, its distribution, its independence.
#include "tests/unit/sampling/gumbel_noise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;

namespace {

/// Kolmogorov-Smirnov distance between the sample and the Gumbel distribution, times sqrt(n).
/// Above 1.95 with probability 0.001 if the sample is Gumbel.
double gumbel_distance(std::vector<float> sample) {
    std::sort(sample.begin(), sample.end());
    const auto n = static_cast<double>(sample.size());
    double distance = 0.0;
    for (std::size_t i = 0; i < sample.size(); ++i) {
        const double cdf = std::exp(-std::exp(-static_cast<double>(sample[i])));
        distance = std::max({distance, std::fabs(cdf - static_cast<double>(i) / n),
                             std::fabs(cdf - static_cast<double>(i + 1) / n)});
    }
    return distance * std::sqrt(n);
}

double correlation(const std::vector<float>& a, const std::vector<float>& b) {
    double sum_a = 0;
    double sum_b = 0;
    double aa = 0;
    double bb = 0;
    double ab = 0;
    const auto n = static_cast<double>(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double x = static_cast<double>(a[i]);
        const double y = static_cast<double>(b[i]);
        sum_a += x;
        sum_b += y;
        aa += x * x;
        bb += y * y;
        ab += x * y;
    }
    return (ab - sum_a * sum_b / n) /
           std::sqrt((aa - sum_a * sum_a / n) * (bb - sum_b * sum_b / n));
}

std::vector<float> noise_of(std::uint64_t seed, TokenId token, int positions) {
    std::vector<float> noise;
    for (Position p = 0; p < positions; ++p) noise.push_back(gumbel(seed, p, token));
    return noise;
}

}  // namespace

TEST_CASE("the extreme words give the documented extremes of the noise") {
    const float earliest = exponential_of(0xffffffffU) / 16.0f;
    const float latest = exponential_of(0) / 16.0f + exponential_of(0);
    CHECK(earliest == 0x1p-36f);
    CHECK(-fixed_log(earliest) <= noise::kGumbelMax);
    CHECK(-fixed_log(earliest) > noise::kGumbelMax - 0.1f);
    CHECK(-fixed_log(latest) >= noise::kGumbelMin);
    CHECK(-fixed_log(latest) < noise::kGumbelMin + 0.1f);
}

TEST_CASE("the fixed logarithm and exponential are those of mathematics") {
    for (double x = 1e-11; x < 30.0; x *= 1.0007) {
        const auto rounded = static_cast<float>(x);
        const double exact = std::log(static_cast<double>(rounded));
        CHECK(static_cast<double>(fixed_log(rounded)) ==
              doctest::Approx(exact).epsilon(3e-7).scale(1));
    }
    CHECK(fixed_log(1.0f) == 0.0f);
    for (std::uint64_t word = 0; word <= 0xffffffffULL; word += 99991) {
        const double u = (static_cast<double>(word >> 1) + 0.5) / 2147483648.0;
        const double exact = -std::log(u);
        const auto draw = static_cast<double>(exponential_of(static_cast<std::uint32_t>(word)));
        CHECK(std::fabs(draw - exact) <= 4e-7 * exact);
    }
    CHECK(weight_of(0.0f) == 1U << 30);
    CHECK(weight_of(-21.0f) == 0);
    CHECK(weight_of(-std::numeric_limits<float>::infinity()) == 0);
    CHECK(weight_of(std::numeric_limits<float>::quiet_NaN()) == 0);
    for (float z = 0.0f; z > -21.0f; z -= 0.00137f) {
        const double exact = std::exp(static_cast<double>(z)) * 1073741824.0;
        CHECK(std::fabs(static_cast<double>(weight_of(z)) - exact) <= 1.0 + 4e-7 * exact);
    }
}

TEST_CASE("the noise of a token over positions, and of a position over tokens, is Gumbel") {
    for (const TokenId token : {0, 17, 255, 256, 49151}) {
        CHECK(gumbel_distance(noise_of(7, token, 100000)) < 1.95);
    }
    std::vector<float> over_tokens;
    for (TokenId token = 0; token < 49152; ++token) over_tokens.push_back(gumbel(7, 3, token));
    CHECK(gumbel_distance(over_tokens) < 1.95);
    std::vector<float> over_seeds;
    for (std::uint64_t seed = 0; seed < 50000; ++seed)
        over_seeds.push_back(gumbel(seed << 20, 3, 9));
    CHECK(gumbel_distance(over_seeds) < 1.95);
}

TEST_CASE("the noise of two tokens is independent, in one group or not") {
    constexpr int kPositions = 100000;  // the deviation of the correlation is 0.0032
    const std::vector<float> first = noise_of(11, 2, kPositions);
    for (const TokenId other : {18, 242, 3, 258, 1026}) {
        const std::vector<float> second = noise_of(11, other, kPositions);
        CHECK(std::fabs(correlation(first, second)) < 0.012);
        std::vector<float> larger;  // the larger of two independent draws is Gumbel(log 2)
        for (std::size_t i = 0; i < first.size(); ++i) {
            larger.push_back(std::max(first[i], second[i]) - 0.693147f);
        }
        CHECK(gumbel_distance(larger) < 1.95);
    }
    CHECK(std::fabs(correlation(first, noise_of(12, 2, kPositions))) < 0.012);
}

TEST_CASE("the smaller of two draws of one group is what independence says") {
    constexpr int kPositions = 100000;
    int both = 0;  // P(both > 0) = (1 - 1/e)^2
    for (Position p = 0; p < kPositions; ++p) {
        if (gumbel(5, p, 33) > 0.0f && gumbel(5, p, 49) > 0.0f) ++both;
    }
    const double expected = kPositions * std::pow(1.0 - std::exp(-1.0), 2);
    CHECK(std::fabs(both - expected) < 4.0 * std::sqrt(expected * 0.6));
}

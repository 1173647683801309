#include "actors/self_draft/gaussian_process.hpp"

#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

SkipSet random_set(std::mt19937_64& random, int layers) {
    SkipSet set{layers};
    for (int s = 0; s < 2 * layers; ++s) set.set(s, random() % 2 == 0);
    return set;
}

/// Every skipped sub-layer costs its own share.
double worth(const SkipSet& set) {
    double sum = 0.0;
    for (int s = 0; s < 2 * set.layers(); ++s) sum -= set.skips(s) ? 0.01 * (1 + s % 5) : 0.0;
    return sum;
}

}  // namespace

TEST_CASE("two values: the belief is the one that the formulas give by hand") {
    SkipSet a{4};
    SkipSet b{4};
    for (int s = 0; s < 4; ++s) b.set(s, true);
    const std::vector<SetValue> known = {{a, 0.2}, {b, 0.6}};
    const GaussianProcess process{known};
    SkipSet between{4};
    between.set(0, true);
    const GaussianProcess::Belief belief = process.expect(std::vector{between}).front();
    // Mean 0.4, deviation 0.2, values -1 and 1, root of the mean distance 2. All lengths and
    // noises:
    double best_likelihood = -1e9;
    double mean = 0.0;
    double deviation = 0.0;
    const auto covariance = [](double d, double length) {
        const double r = std::sqrt(5.0 * d) / length;
        return (1 + r + r * r / 3) * std::exp(-r);
    };
    for (const double length : {2.0, 4.0, 8.0}) {
        for (const double noise : {0.01, 0.1, 1.0}) {
            const double k = covariance(4, length);
            const double own = 1.0 + noise;
            const double determinant = own * own - k * k;
            const double likelihood =
                -0.5 * (2 * own + 2 * k) / determinant - 0.5 * std::log(determinant);
            if (likelihood <= best_likelihood) continue;
            best_likelihood = likelihood;
            const double ka = covariance(1, length);
            const double kb = covariance(3, length);
            // K^-1 = [own, -k; -k, own] / determinant
            const double wa = (own * ka - k * kb) / determinant;
            const double wb = (own * kb - k * ka) / determinant;
            mean = 0.4 + 0.2 * (wb - wa);
            deviation = 0.2 * std::sqrt(1.0 - wa * ka - wb * kb);
        }
    }
    CHECK(belief.mean == doctest::Approx(mean));
    CHECK(belief.deviation == doctest::Approx(deviation));
}

TEST_CASE("beliefs follow the values of exact measurements, with small deviation where they are") {
    std::mt19937_64 random{5};
    std::vector<SetValue> known;
    for (int i = 0; i < 120; ++i) {
        const SkipSet set = random_set(random, 12);
        known.push_back({set, worth(set)});
    }
    const GaussianProcess process{known};
    CHECK(process.noise() == GaussianProcess::kNoiseLeast);
    double error = 0.0;
    double spread = 0.0;
    for (int i = 0; i < 200; ++i) {
        const SkipSet set = random_set(random, 12);
        const auto belief = process.expect(std::vector{set}).front();
        error += std::pow(belief.mean - worth(set), 2);
        spread += std::pow(worth(set) + 0.36, 2);  // of the mean of all sets
        CHECK(std::abs(belief.mean - worth(set)) < 6 * belief.deviation + 0.01);
    }
    CHECK(error < 0.1 * spread);
    for (const SetValue& each : known) {
        const auto belief = process.expect(std::vector{each.set}).front();
        CHECK(belief.mean == doctest::Approx(each.value).epsilon(0.1));
        CHECK(belief.deviation < 0.02);
    }
}

TEST_CASE("noisy measurements are taken for noisy") {
    std::mt19937_64 random{6};
    std::normal_distribution<> normal{0.0, 0.2};
    std::vector<SetValue> known;
    for (int i = 0; i < 60; ++i) {
        const SkipSet set = random_set(random, 12);
        known.push_back({set, worth(set) + normal(random)});
    }
    CHECK(GaussianProcess{known}.noise() > GaussianProcess::kNoiseLeast);
}

TEST_CASE("beliefs about many candidates are those about each, and equal values are no trouble") {
    std::mt19937_64 random{7};
    std::vector<SetValue> known;
    known.reserve(11);
    for (int i = 0; i < 10; ++i) known.push_back({random_set(random, 40), 0.5});
    known.push_back(known.front());  // the same set twice
    const GaussianProcess process{known};
    std::vector<SkipSet> candidates;
    candidates.reserve(7);
    for (int i = 0; i < 7; ++i) candidates.push_back(random_set(random, 40));
    const auto together = process.expect(candidates);
    REQUIRE(together.size() == 7);
    for (std::size_t i = 0; i < 7; ++i) {
        const auto alone = process.expect(std::vector{candidates[i]}).front();
        CHECK(alone.mean == together[i].mean);
        CHECK(alone.deviation == together[i].deviation);
        CHECK(alone.mean == doctest::Approx(0.5));
    }
    CHECK(process.expect({}).empty());
}

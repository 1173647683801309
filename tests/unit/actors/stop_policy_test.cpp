#include "actors/decoding/stop_policy.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

/// A draft whose candidates are right with the probability that it gives them, uniform from 0.3 to
/// 1: rounds of at most `length` until one is below the threshold. The rate of accepted candidates
/// over the last half of the rounds.
double rate_of_calibrated_draft(AdaptiveThreshold& threshold, int length, int rounds) {
    std::mt19937_64 random{11};
    std::uniform_real_distribution<> uniform{0.3, 1.0};
    double accepted = 0.0;
    double drafted = 0.0;
    for (int round = 0; round < rounds; ++round) {
        int chain = 0;
        int right = 0;
        bool ended = false;
        bool matches = true;
        while (chain < length && !ended) {
            const double p = uniform(random);
            ++chain;
            matches = matches && std::uniform_real_distribution<>{0.0, 1.0}(random) < p;
            right += matches ? 1 : 0;
            ended = p < threshold.now();
        }
        threshold.verified(right, chain, !ended);
        if (round < rounds / 2) continue;
        accepted += right;
        drafted += chain;
    }
    return accepted / drafted;
}

}  // namespace

TEST_CASE("the threshold rises by a tenth of the step while too few candidates are accepted") {
    AdaptiveThreshold threshold{{.start = 0.6}};
    threshold.verified(0, 4, false);
    CHECK(threshold.now() == doctest::Approx(0.601));
    threshold.verified(3, 4, true);  // mean 0.375: the length does not matter here
    CHECK(threshold.now() == doctest::Approx(0.602));
}

TEST_CASE("the mean rate begins at 0, so the first perfect rounds raise the threshold as well") {
    AdaptiveThreshold threshold{{.start = 0.6}};
    for (int i = 0; i < 3; ++i) threshold.verified(4, 4, false);  // 0.5, 0.75, 0.875
    CHECK(threshold.now() == doctest::Approx(0.603));
    threshold.verified(4, 4, false);  // 0.9375
    CHECK(threshold.now() == doctest::Approx(0.602));
}

TEST_CASE("above the target rate a chain that reached the maximum length leaves the threshold") {
    AdaptiveThreshold threshold{{.start = 0.6, .target = 0.4}};
    for (int i = 0; i < 100; ++i) threshold.verified(12, 12, true);
    CHECK(threshold.now() == doctest::Approx(0.6));
    threshold.verified(12, 12, false);
    CHECK(threshold.now() == doctest::Approx(0.599));
}

TEST_CASE("the threshold stays in its bounds") {
    AdaptiveThreshold low{{.start = 0.02, .target = 0.1}};
    AdaptiveThreshold high{{.start = 0.98}};
    for (int i = 0; i < 500; ++i) {
        low.verified(3, 3, false);
        high.verified(0, 3, false);
    }
    CHECK(low.now() == AdaptiveThreshold::kLeast);
    CHECK(high.now() == AdaptiveThreshold::kMost);
    CHECK(AdaptiveThreshold{{.start = 0.0}}.now() == AdaptiveThreshold::kLeast);
    CHECK(AdaptiveThreshold{{.start = 1.0}}.now() == AdaptiveThreshold::kMost);
}

TEST_CASE("a round without candidates does not change the threshold") {
    AdaptiveThreshold threshold{{.start = 0.7}};
    for (int i = 0; i < 10; ++i) threshold.verified(0, 0, false);
    CHECK(threshold.now() == 0.7);
}

TEST_CASE("the rate of accepted candidates settles near the target from either side") {
    for (const double start : {0.2, 0.95}) {
        AdaptiveThreshold threshold{{.start = start, .target = 0.6}};
        const double rate = rate_of_calibrated_draft(threshold, 12, 20'000);
        CAPTURE(start);
        CAPTURE(threshold.now());
        CHECK(rate == doctest::Approx(0.6).epsilon(0.15));
        CHECK(threshold.now() > 0.3);
        CHECK(threshold.now() < 0.9);
    }
}

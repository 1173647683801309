#include "actors/account/hit_rates.hpp"

#include <cmath>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr HitSource kDraft{.origin = msg::Origin::Trunk};

float log_of(double probability) {
    return static_cast<float>(std::log(probability));
}

/// `of_ten` of ten candidates with this estimate are right, `times` over.
void learn(HitRates& rates, HitSource source, double estimate, int of_ten, int times) {
    for (int i = 0; i < 10 * times; ++i) rates.learn(source, log_of(estimate), i % 10 < of_ten);
}

}  // namespace

TEST_CASE("before anything is known an estimate is believed, a drawn one less") {
    const HitRates rates;
    CHECK(rates.expected(kDraft, log_of(0.8)) == doctest::Approx(0.8));
    CHECK(rates.expected({msg::Origin::Trunk, true}, log_of(0.5)) ==
          doctest::Approx(0.5 * HitRates::kDrawnRatio));
    CHECK(rates.mean(kDraft) == doctest::Approx(HitRates::kUnknownRate));
}

TEST_CASE("an overconfident source is corrected where it is overconfident") {
    HitRates rates;
    learn(rates, kDraft, 0.6, 3, 20);
    learn(rates, kDraft, 0.97, 9, 20);
    CHECK(rates.expected(kDraft, log_of(0.6)) == doctest::Approx(0.3).epsilon(0.05));
    CHECK(rates.expected(kDraft, log_of(0.97)) == doctest::Approx(0.9).epsilon(0.03));
    CHECK(rates.mean(kDraft) == doctest::Approx(0.6).epsilon(0.5));
}

TEST_CASE("a candidate that is hardly possible at all has a probability, also the first one") {
    const HitRates rates;
    const double least = rates.expected({}, -5000.0F);
    CHECK(least >= 0.0);  // not NaN
    CHECK(least < 1e-3);
}

TEST_CASE("sources are told apart, and texts with a temperature from greedy ones") {
    HitRates rates;
    learn(rates, {msg::Origin::Exit, false}, 0.6, 0, 5);
    CHECK(rates.expected(kDraft, log_of(0.6)) == doctest::Approx(0.6));
    CHECK(rates.expected({msg::Origin::Exit, true}, log_of(0.6)) ==
          doctest::Approx(0.6 * HitRates::kDrawnRatio));
    CHECK(rates.expected({msg::Origin::Exit, false}, log_of(0.6)) < 0.1);
}

TEST_CASE("a text that changes shows within a memory of observations") {
    HitRates rates;
    learn(rates, kDraft, 0.8, 0, 100);
    CHECK(rates.mean(kDraft) < 0.05);
    learn(rates, kDraft, 0.8, 10, 10);
    CHECK(rates.mean(kDraft) > 0.5);
}

TEST_CASE("a probe lets new observations count") {
    HitRates rates;
    learn(rates, kDraft, 0.8, 0, 100);
    rates.shorten_memory();
    CHECK(rates.tries(kDraft) == doctest::Approx(HitRates::kProbeMemory));
    learn(rates, kDraft, 0.8, 10, 1);
    CHECK(rates.mean(kDraft) > 0.5);
}

TEST_CASE("a probability is never above one, whatever was seen") {
    HitRates rates;
    learn(rates, kDraft, 0.9, 10, 20);
    CHECK(rates.expected(kDraft, log_of(0.9)) <= HitRates::kProbabilityMax);
    CHECK(rates.expected(kDraft, 0.5F) <= HitRates::kProbabilityMax);
}

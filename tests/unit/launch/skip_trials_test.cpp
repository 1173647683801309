#include "launch/cli/skip_trials.hpp"

#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/toy/toy_backend.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

const std::vector<std::vector<TokenId>> kPrompts{{1, 2, 3, 4, 5}, {7, 8, 9}, {11, 3}};

}  // namespace

TEST_CASE("a model predicts all of its own answers, and fewer without a sub-layer") {
    const SkipTrialOptions options{.tokens = 20, .window = 6};
    FakeBackend backend{0, kFakeLayers, SkipTrials::slots(kPrompts, options)};
    SkipTrials trials{backend, options};
    REQUIRE(trials.prepare(kPrompts, {}).ok());
    CHECK(trials.compared() == 60);
    CHECK(trials.matchness(SkipSet{kFakeLayers}) == 1.0);
    SkipSet one{kFakeLayers};
    one.set(8, true);
    CHECK(trials.matchness(one) < 1.0);
    // What a trial wrote does not change the next one.
    CHECK(trials.matchness(SkipSet{kFakeLayers}) == 1.0);
}

TEST_CASE("an answer ends with its end token, and without answers there is nothing to measure") {
    const SkipTrialOptions options{.tokens = 20, .window = 6};
    FakeBackend backend{0, kFakeLayers, SkipTrials::slots(kPrompts, options)};
    std::vector<TokenId> all;
    for (TokenId token = 0; token < kFakeVocab; ++token) all.push_back(token);
    SkipTrials trials{backend, options};
    REQUIRE(trials.prepare(kPrompts, all).ok());
    CHECK(trials.compared() == 3);
    SkipTrials none{backend, options};
    const Status refused = none.prepare({}, {});
    REQUIRE(!refused.ok());
    CHECK(refused.error().code == Errc::BadArgument);
}

TEST_CASE("what a draft is expected to gain is the best of the lengths' closed formula") {
    const double a = 0.9;
    const double c = 0.3;
    const ExpectedGain found = expected_gain(a, c, 12);
    double best = 1.0;
    for (int k = 1; k <= 12; ++k)
        best = std::max(best, (1 - std::pow(a, k + 1)) / (1 - a) / (k * c + 1));
    CHECK(found.speed_up == doctest::Approx(best));
    CHECK(found.length > 1);
    CHECK(expected_gain(0.2, 0.8, 12).length == 0);
    CHECK(expected_gain(0.2, 0.8, 12).speed_up == 1.0);
    CHECK(expected_gain(1.0, 0.5, 12).length == 12);
}

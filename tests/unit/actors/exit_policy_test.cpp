#include "actors/decoding/exit_policy.hpp"

#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr RequestId kOne{1};
constexpr Attempt kFirst{1};

/// Batches in a row with an exit that is right with probability `right`; how often it looked.
int looks_of(ExitPolicy& policy, int batches, double right, double share, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::bernoulli_distribution luck{right};
    int looks = 0;
    for (int batch = 0; batch < batches; ++batch) {
        if (!policy.ask()) continue;
        ++looks;
        policy.spent(share, true, 1);
        policy.learned(luck(random) ? 1 : 0);
    }
    return looks;
}

}  // namespace

TEST_CASE("an exit that is never right soon rests, and costs little from then on") {
    for (const double share : {0.05, 0.3, 1.0}) {
        ExitPolicy policy{false};
        const int first = looks_of(policy, 100, 0.0, share, 1);
        CHECK(policy.resting());
        CHECK(first < 50);
        // In the long run: a try of four looks after each pause of 256 batches.
        CHECK(looks_of(policy, 5000, 0.0, share, 2) < 120);
    }
    ExitPolicy always{true};
    CHECK(looks_of(always, 500, 0.0, 1.0, 1) == 500);
}

TEST_CASE("an exit that gains more than it costs works on, and comes back when it does again") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        ExitPolicy policy{false};
        CHECK(looks_of(policy, 2000, 0.5, 0.1, seed) > 1900);
        (void)looks_of(policy, 500, 0.0, 0.1, seed);
        CHECK(policy.resting());
        CHECK(looks_of(policy, 2000, 0.6, 0.1, seed) > 1000);
        CHECK_FALSE(policy.resting());
    }
}

TEST_CASE("what a look costs is its time as far as a batch waited, and the rows it caused") {
    ExitPolicy policy{false};
    CHECK_FALSE(policy.resting());
    policy.spent(0.2, true, 2);
    CHECK(policy.cost() == doctest::Approx(0.2 + 2 * ExitPolicy::kRowCost));
    policy.spent(5.0, true, 2);  // it had to wait for its core: that is not its own price
    CHECK(policy.cost() < 0.22 + 2 * ExitPolicy::kRowCost);
    for (int i = 0; i < 200; ++i) policy.spent(0.2, false, 0);
    CHECK(policy.cost() == doctest::Approx(0.2 * ExitPolicy::kIdleShare).epsilon(0.01));
    for (int i = 0; i < 200; ++i) policy.spent(0.6, true, 0);
    CHECK(policy.cost() == doctest::Approx(0.6).epsilon(0.01));
}

TEST_CASE("candidates are resolved when the text has come so far, along their own path only") {
    ExitRecord book;
    const auto resolved = [&](std::vector<TokenId> text) {
        return book.resolve(kOne, kFirst, text);
    };
    // After the text 7: either 1 or 2 next; after 1 comes 3; after 2 comes 4.
    const std::vector<ExitCandidates::Place> said = {{.at = 1, .tokens = {1, 2}},
                                                     {.at = 2, .path = {1}, .tokens = {3}},
                                                     {.at = 2, .path = {2}, .tokens = {4}}};
    book.add({.request = kOne, .attempt = kFirst, .places = said});
    CHECK(resolved({7}).empty());
    CHECK(resolved({7, 2}).empty());
    CHECK(resolved({7, 2, 4}) == std::vector<std::size_t>{2});
    CHECK(resolved({7, 2, 4}).empty());  // once
    book.add({.request = kOne, .attempt = kFirst, .places = said});
    CHECK(resolved({7, 9}) == std::vector<std::size_t>{0});
    book.add({.request = kOne, .attempt = kFirst, .places = {}});
    CHECK(resolved({7}) == std::vector<std::size_t>{0});
}

TEST_CASE("in a chain nothing is right after what was wrong") {
    ExitRecord book;
    for (const bool chained : {false, true}) {
        book.add({.request = kOne,
                  .attempt = kFirst,
                  .chained = chained,
                  .places = {{.at = 1, .tokens = {1}}, {.at = 2, .tokens = {2}}}});
    }
    const std::vector<TokenId> text{7, 9, 2};
    CHECK(book.resolve(kOne, kFirst, text) == std::vector<std::size_t>{1, 0});
}

TEST_CASE("looks of other requests wait, those of old attempts go, and there are never too many") {
    ExitRecord book;
    const std::vector<TokenId> text{7, 1};
    book.add({.request = RequestId{2}, .attempt = kFirst, .places = {{.at = 1, .tokens = {1}}}});
    book.add({.request = kOne, .attempt = kFirst, .places = {{.at = 1, .tokens = {1}}}});
    CHECK(book.resolve(kOne, Attempt{2}, text).empty());
    CHECK(book.resolve(kOne, kFirst, text).empty());
    CHECK(book.resolve(RequestId{2}, kFirst, text) == std::vector<std::size_t>{1});
    for (std::size_t i = 0; i < ExitRecord::kEvaluationsMax + 9; ++i)
        book.add({.request = kOne, .attempt = kFirst, .places = {{.at = 1, .tokens = {1}}}});
    CHECK(book.resolve(kOne, kFirst, text).size() == ExitRecord::kEvaluationsMax);
}

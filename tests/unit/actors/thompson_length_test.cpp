// The stop rule "thompson" against a plain reference that is written from its text, and against
// what is known of the lengths that it gives.
#include "actors/decoding/thompson_length.hpp"

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/growth.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

/// The rule as its text has it: one candidate after the other, a decision after each.
struct PlainRule {
    std::int32_t longest;
    double decay;
    std::mt19937_64 random;
    double alpha = 1.0;  // of the prior and what was accepted
    double beta = 1.0;

    std::int32_t draft() {
        for (std::int32_t candidates = 1;; ++candidates) {
            if (candidates == longest) return candidates;
            std::gamma_distribution<double> first{alpha};
            std::gamma_distribution<double> second{beta};
            const double x = first(random);
            const double y = second(random);
            std::uniform_real_distribution<double> uniform{0.0, 1.0};
            const bool goes_on = uniform(random) < x / (x + y);
            if (!goes_on) return candidates;
        }
    }
    void judge(const std::vector<bool>& right) {
        double accepted = 0.0;
        double rejected = 0.0;
        for (const bool one : right) {
            if (!one) {
                rejected = 1.0;
                break;
            }
            accepted += 1.0;
        }
        alpha = 1.0 + decay * (alpha - 1.0) + accepted;
        beta = 1.0 + decay * (beta - 1.0) + rejected;
    }
};

/// How often each length was drawn in `rounds` rounds after these verdicts, by one rule per round.
std::map<std::int32_t, int> lengths_after(const std::vector<std::int32_t>& accepted,
                                          std::int32_t could,
                                          std::int32_t longest,
                                          int rounds) {
    std::map<std::int32_t, int> counts;
    for (int round = 0; round < rounds; ++round) {
        ThompsonLength length{
            {.longest = longest, .decay = 1.0, .seed = static_cast<std::uint64_t>(round)}};
        for (const std::int32_t one : accepted) length.verified(one, could);
        ++counts[length.now()];
    }
    return counts;
}

}  // namespace

TEST_CASE("500 rounds give the lengths and the counts of a plain reference") {
    std::mt19937_64 verdicts{3};
    for (const double decay : {0.0, 0.5, 0.95, 1.0}) {
        CAPTURE(decay);
        ThompsonLength length{{.longest = 12, .decay = decay, .seed = 77}};
        PlainRule plain{.longest = 12, .decay = decay, .random = std::mt19937_64{77}};
        for (int round = 0; round < 500; ++round) {
            const std::int32_t drafted = plain.draft();
            REQUIRE(length.now() == drafted);
            std::vector<bool> right;
            std::int32_t accepted = 0;
            for (std::int32_t i = 0; i < drafted; ++i) {
                right.push_back(verdicts() % 5 != 0);
                if (right.back() && accepted == i) ++accepted;
            }
            plain.judge(right);
            length.verified(accepted, drafted);
            CHECK(1.0 + length.accepted() == doctest::Approx(plain.alpha));
            CHECK(1.0 + length.rejected() == doctest::Approx(plain.beta));
        }
    }
}

TEST_CASE("lengths are geometric with the mean of the Beta distribution") {
    // 11 accepted, 3 rejected: theta has the mean 12 / 16.
    const int rounds = 20'000;
    const double goes_on = 12.0 / 16.0;
    std::map<std::int32_t, int> counts = lengths_after({5, 4, 2}, 6, 6, rounds);
    double left = 1.0;
    for (std::int32_t length = 1; length <= 6; ++length) {
        CAPTURE(length);
        const double expected = length == 6 ? left : left * (1.0 - goes_on);
        // Four standard deviations of a count; the seeds are fixed.
        const double tolerance = 4.0 * std::sqrt(expected * (1.0 - expected) / rounds);
        CHECK(std::abs(counts[length] / static_cast<double>(rounds) - expected) < tolerance);
        left *= goes_on;
    }
}

TEST_CASE("a verdict without candidates begins a round and teaches nothing") {
    ThompsonLength length{{.longest = 32, .decay = 0.5, .seed = 1}};
    length.verified(3, 4);
    CHECK(length.accepted() == 3.0);
    CHECK(length.rejected() == 1.0);
    std::map<std::int32_t, int> drawn;
    for (int i = 0; i < 50; ++i) {
        length.verified(0, 0);
        ++drawn[length.now()];
    }
    CHECK(length.accepted() == 3.0);
    CHECK(length.rejected() == 1.0);
    CHECK(drawn.size() > 1);
    length.verified(4, 4);  // decayed, and none was rejected
    CHECK(length.accepted() == 5.5);
    CHECK(length.rejected() == 0.5);
}

TEST_CASE("one seed gives one sequence, and each length is from 1 to the longest") {
    ThompsonLength one{{.longest = 4, .seed = 5}};
    ThompsonLength same{{.longest = 4, .seed = 5}};
    ThompsonLength other{{.longest = 4, .seed = 6}};
    int differs = 0;
    for (int i = 0; i < 200; ++i) {
        CHECK(one.now() >= 1);
        CHECK(one.now() <= 4);
        REQUIRE(one.now() == same.now());
        differs += one.now() == other.now() ? 0 : 1;
        for (ThompsonLength* each : {&one, &same, &other}) each->verified(i % 3, 2);
    }
    CHECK(differs > 0);
}

TEST_CASE("a sequential draft grows its trunk by the drawn length, other paces by gamma") {
    const GrowthRule rule{
        .pace = DraftPace::Sequential, .gamma = 9, .thompson = true, .thompson_decay = 0.9};
    Growth growth{rule, 42};
    ThompsonLength length{{.longest = 9, .decay = 0.9, .seed = 42}};
    for (int round = 0; round < 100; ++round) {
        DraftTree tree{64};
        tree.plant(1, 0);
        std::int32_t passes = 0;
        for (Growth::Step step = growth.next(tree, 100); !step.expand.empty();
             step = growth.next(tree, 100)) {
            const std::vector<Candidate> candidates{{.token = 2, .log_prob = -0.1F}};
            tree.expand(step.expand.front(), candidates);
            growth.passed();
            ++passes;
        }
        REQUIRE(passes == length.now());
        const std::int32_t accepted = round % (passes + 1);
        growth.verified(accepted, passes, false);
        length.verified(accepted, passes);
    }
    GrowthRule ahead = rule;
    ahead.pace = DraftPace::Ahead;
    CHECK(Growth{ahead, 42}.gamma() == 9);
}

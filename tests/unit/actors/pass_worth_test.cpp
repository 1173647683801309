#include "actors/decoding/pass_worth.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

using Micros = PassWorth::Micros;

/// Verdicts every `between` microseconds that commit `tokens`, and passes of `pass`.
PassWorth after(int between, int tokens, int pass, int verdicts = 60) {
    PassWorth worth;
    for (int i = 0; i < verdicts; ++i) {
        worth.verified(Micros{1000 + i * between}, tokens);
        worth.passed(Micros{5 * pass});  // the first one of a turn is dearer, and made in any case
        worth.passed(Micros{pass});
    }
    return worth;
}

}  // namespace

TEST_CASE("before there is a pass and a time between verdicts everything pays") {
    PassWorth worth;
    CHECK(worth.reach_min() == 0.0F);
    worth.verified(Micros{1000}, 3);
    worth.passed(Micros{500});
    CHECK(worth.reach_min() == 0.0F);
    worth.verified(Micros{3000}, 2);
    CHECK(worth.reach_min() == 0.0F);  // what a further pass costs is not known
    worth.passed(Micros{500});
    worth.passed(Micros{500});
    CHECK(worth.reach_min() > 0.0F);
}

TEST_CASE("a pass pays where the tokens it may bring take longer than it does") {
    // 1000 us a token; a pass of 200 and a row of 100 (a twentieth of 2000), right in one of two.
    CHECK(after(2000, 2, 200).reach_min() == doctest::Approx(0.6));
    CHECK(after(2000, 2, 100).reach_min() == doctest::Approx(0.4));
    CHECK(after(20'000, 2, 1000).reach_min() == doctest::Approx(0.4));
}

TEST_CASE("a draft as slow as the target goes on after sure candidates only") {
    CHECK(after(2000, 2, 1000).reach_min() == PassWorth::kMost);
}

TEST_CASE("a draw is believed half as much as a greedy token") {
    PassWorth greedy{true};
    PassWorth drawn{false};
    for (PassWorth* worth : {&greedy, &drawn}) {
        for (int i = 0; i < 3; ++i) {
            worth->verified(Micros{1000 + i * 2000}, 2);
            worth->passed(Micros{900});
            worth->passed(Micros{50});
        }
    }
    CHECK(drawn.reach_min() == doctest::Approx(2 * greedy.reach_min()));
}

TEST_CASE("one long pause changes little") {
    PassWorth worth = after(2000, 2, 200);
    const float before = worth.reach_min();
    worth.verified(Micros{60'000'000}, 2);
    worth.passed(Micros{30'000'000});
    worth.passed(Micros{30'000'000});
    CHECK(worth.reach_min() > 0.8F * before);
    CHECK(worth.reach_min() < 1.25F * before);
}

#include "actors/account/pass_rule.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

msg::Price price_of(float token, float row, float share) {
    msg::Price price{};
    price.generation = 1;
    price.token_us = token;
    price.plain_us = token;
    price.row_us = row;
    price.pass_share = share;
    return price;
}

PassRule after_passes(double first, double further) {
    PassRule rule;
    for (int i = 0; i < 20; ++i) {
        rule.passed(first, true);
        rule.passed(further, false);
    }
    return rule;
}

}  // namespace

TEST_CASE("before there is a price or a time everything pays") {
    const PassRule unknown;
    CHECK(unknown.begins(price_of(1000, 50, 1), 0.01, 100, 8));
    CHECK(unknown.reach_min(price_of(1000, 50, 1), 0.5, true) == 0.0);
    const PassRule known = after_passes(300, 200);
    CHECK(known.begins({}, 0.01, 100, 8));
    CHECK(known.reach_min({}, 0.5, true) == 0.0);
}

TEST_CASE("another pass pays where its token is worth more than pass and row") {
    const PassRule rule = after_passes(300, 200);
    CHECK(rule.reach_min(price_of(1000, 50, 1), 0.5, true) == doctest::Approx(0.5));
    CHECK(rule.reach_min(price_of(1000, 50, 0), 0.5, true) == doctest::Approx(0.1));
    CHECK(rule.reach_min(price_of(1000, 50, 0), 0.5, false) == 0.0);
}

TEST_CASE("a round is not begun that no length of the chain pays for") {
    const PassRule rule = after_passes(400, 200);
    const msg::Price price = price_of(1000, 50, 1);
    CHECK_FALSE(rule.begins(price, 0.3, 50, 8));
    CHECK(rule.begins(price, 0.5, 50, 8));
    // One token alone would not pay here, a longer chain does.
    CHECK_FALSE(after_passes(700, 20).begins(price, 0.7, 50, 1));
    CHECK(after_passes(700, 20).begins(price, 0.7, 50, 8));
}

TEST_CASE("few observations forbid nothing, a probe is always begun, off never") {
    const PassRule rule = after_passes(900, 900);
    msg::Price price = price_of(1000, 50, 1);
    CHECK(rule.begins(price, 0.01, PassRule::kTriesMin - 1, 8));
    CHECK_FALSE(rule.begins(price, 0.01, PassRule::kTriesMin, 8));
    price.mode = msg::SpeculationMode::Probe;
    CHECK(rule.begins(price, 0.01, 100, 8));
    price.mode = msg::SpeculationMode::Off;
    CHECK_FALSE(rule.begins(price, 1.0, 0, 8));
}

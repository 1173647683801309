// What a row of a prompt is measured to cost beside requests that are decoded.
#include "actors/account/prompt_costs.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

TEST_CASE("a row's cost is unknown before a batch with a prompt was measured") {
    CHECK(PromptCosts{}.row_us(0) == 0.0);
}

TEST_CASE("what a batch took longer is shared out among its rows of prompts") {
    PromptCosts costs;
    costs.learn({.rows = 16, .context = 100}, 1600.0);
    CHECK(costs.row_us(0) == doctest::Approx(100.0));
    CHECK(costs.row_us(255) == doctest::Approx(100.0));
}

TEST_CASE("rows far into a prompt have a cost of their own, and the nearest one before that") {
    PromptCosts costs;
    costs.learn({.rows = 10, .context = 0}, 1000.0);
    CHECK(costs.row_us(4000) == doctest::Approx(100.0));
    costs.learn({.rows = 10, .context = 4000}, 4000.0);
    CHECK(costs.row_us(3900) == doctest::Approx(400.0));
    CHECK(costs.row_us(0) == doctest::Approx(100.0));
    CHECK(costs.row_us(100'000'000) == doctest::Approx(400.0));
}

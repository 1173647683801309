#include "actors/account/batch_costs.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

void learn(BatchCosts& costs, const BatchSize& size, std::uint32_t sum, int times = 20) {
    for (int i = 0; i < times; ++i) costs.learn(size, {.sum_us = sum, .longest_us = sum / 2});
}

}  // namespace

TEST_CASE("nothing is known before the first batch that has times") {
    BatchCosts costs;
    costs.learn({.rows = 4, .requests = 1}, {});
    CHECK(costs.expected({.rows = 4, .requests = 1}).sum_us == 0.0);
}

TEST_CASE("measured numbers of rows are known, others lie between them") {
    BatchCosts costs;
    learn(costs, {.rows = 1, .requests = 1}, 1000);
    learn(costs, {.rows = 9, .requests = 1}, 1800);
    CHECK(costs.expected({.rows = 1, .requests = 1}).sum_us == doctest::Approx(1000));
    CHECK(costs.expected({.rows = 5, .requests = 1}).sum_us == doctest::Approx(1400));
    CHECK(costs.expected({.rows = 5, .requests = 1}).longest_us == doctest::Approx(700));
}

TEST_CASE("beyond what was measured a row costs its usual share") {
    BatchCosts costs;
    learn(costs, {.rows = 1, .requests = 1}, 1000);
    CHECK(costs.expected({.rows = 11, .requests = 1}).sum_us ==
          doctest::Approx(1000 * (1 + 10 * BatchCosts::kRowShare)));
}

TEST_CASE("requests and long contexts have curves of their own, once they are measured") {
    BatchCosts costs;
    learn(costs, {.rows = 4, .requests = 1, .context = 100}, 1000);
    CHECK(costs.expected({.rows = 4, .requests = 1, .context = 5000}).sum_us ==
          doctest::Approx(1000));
    learn(costs, {.rows = 4, .requests = 1, .context = 5000}, 3000);
    learn(costs, {.rows = 4, .requests = 4, .context = 100}, 1500);
    CHECK(costs.expected({.rows = 4, .requests = 1, .context = 100}).sum_us ==
          doctest::Approx(1000));
    CHECK(costs.expected({.rows = 4, .requests = 1, .context = 5000}).sum_us ==
          doctest::Approx(3000));
    CHECK(costs.expected({.rows = 4, .requests = 4, .context = 100}).sum_us ==
          doctest::Approx(1500));
}

TEST_CASE("one long pause does not move a mean, a lasting change does") {
    BatchCosts costs;
    const BatchSize size{.rows = 2, .requests = 1};
    learn(costs, size, 1000);
    costs.learn(size, {.sum_us = 2'000'000, .longest_us = 2'000'000});
    CHECK(costs.expected(size).sum_us < 1200);
    learn(costs, size, 2000, 60);
    CHECK(costs.expected(size).sum_us == doctest::Approx(2000).epsilon(0.03));
}

TEST_CASE(
    "the first measurement of a number of rows counts as what others make likely, or a bit more") {
    BatchCosts costs;
    learn(costs, {.rows = 1, .requests = 1}, 1000);
    const BatchSize two{.rows = 2, .requests = 1};
    const double likely = costs.expected(two).sum_us;
    costs.learn(two, {.sum_us = 6000, .longest_us = 3000});  // it was interrupted
    CHECK(costs.expected(two).sum_us == doctest::Approx(BatchCosts::kFirstMost * likely));
    costs.learn(two, {.sum_us = 1100, .longest_us = 550});
    CHECK(costs.expected(two).sum_us == doctest::Approx(1100));
}

TEST_CASE("a number of rows that always takes as long is believed after some batches") {
    BatchCosts costs;
    learn(costs, {.rows = 1, .requests = 1}, 1000);
    learn(costs, {.rows = 2, .requests = 1}, 6000, 4);
    CHECK(costs.expected({.rows = 2, .requests = 1}).sum_us > 4000);
}

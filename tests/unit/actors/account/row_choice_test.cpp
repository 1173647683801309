#include "actors/account/row_choice.hpp"

#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

RowPrices prices_of(double fixed, double plain_rate, double base, double row) {
    return {.fixed_us = fixed, .plain_rate = plain_rate, .time_us = [=](std::uint32_t rows) {
                return base + (row * (rows - 1));
            }};
}

}  // namespace

TEST_CASE("a row is taken where it adds more tokens than its time is worth") {
    // Plain decoding: a token in 1000 us. A row takes 100.
    const RowPrices prices = prices_of(0, 0.001, 1000, 100);
    CHECK(rows_worth(std::vector{0.9, 0.05}, 1, prices) == 1);
    CHECK(rows_worth(std::vector{0.09}, 1, prices) == 0);
    CHECK(rows_worth(std::vector{0.9, 0.8, 0.7}, 1, prices) == 3);
}

TEST_CASE("the rate of the best plan counts, not plain decoding's alone") {
    // With 0.95 three times a token takes about 340 us: a row of 0.15 is worth 51 us, not 100.
    const RowPrices prices = prices_of(0, 0.001, 1000, 100);
    CHECK(rows_worth(std::vector{0.95, 0.95, 0.95, 0.15}, 1, prices) == 3);
}

TEST_CASE("a round that has waited long does not admit rows that plain decoding would not") {
    // 10 ms were lost: by the round's own rate a row of 0.02 would pay.
    CHECK(rows_worth(std::vector{0.02}, 1, prices_of(10'000, 0.0, 1000, 100)) == 1);
    CHECK(rows_worth(std::vector{0.02}, 1, prices_of(10'000, 0.001, 1000, 100)) == 0);
}

TEST_CASE("stopping places behind a step of the time are compared too") {
    const RowPrices steps{.plain_rate = 0.001, .time_us = [](std::uint32_t rows) {
                              return rows <= 2 ? 1000.0 : 1400.0;
                          }};
    // The third row alone does not pay for the step, with those after it does.
    CHECK(rows_worth(std::vector{0.9, 0.3}, 1, steps) == 1);
    CHECK(rows_worth(std::vector{0.9, 0.8, 0.8, 0.7}, 1, steps) == 4);
}

TEST_CASE("before times are known all candidates are sent") {
    const RowPrices unknown{.time_us = [](std::uint32_t) { return -1.0; }};
    CHECK(rows_worth(std::vector{0.5, 0.01}, 1, unknown) == 2);
}

TEST_CASE("a batch behind others is not sent if nothing in it is worth its delay") {
    CHECK(rows_worth(std::vector{0.2, 0.1}, 0, prices_of(0, 0.001, 500, 100)) == 0);
    CHECK(rows_worth(std::vector{0.8, 0.3, 0.01}, 0, prices_of(0, 0.001, 500, 100)) == 2);
}

TEST_CASE("the choice has at least the rate of every other number of rows") {
    std::mt19937_64 random{7};
    for (int round = 0; round < 2000; ++round) {
        std::vector<double> p;
        double last = 1.0;
        std::uniform_real_distribution<double> conditional{0.3, 1.0};
        for (int i = 0; i < 12; ++i) p.push_back(last *= conditional(random));
        std::vector<double> times(14, 0.0);
        for (std::size_t i = 1; i < times.size(); ++i)
            times[i] =
                std::max(times[i - 1], 900.0) + std::uniform_real_distribution{0.0, 200.0}(random);
        const RowPrices prices{.fixed_us = 50.0,
                               .time_us = [&](std::uint32_t rows) { return times[rows]; }};
        const auto rate = [&](std::size_t taken) {
            double tokens = 1.0;
            for (std::size_t i = 0; i < taken; ++i) tokens += p[i];
            return tokens / (50.0 + times[taken + 1]);
        };
        const std::size_t taken = rows_worth(p, 1, prices);
        for (std::size_t other = 0; other <= p.size(); ++other)
            CHECK(rate(taken) >= rate(other) - 1e-9);
    }
}

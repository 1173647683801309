#include "actors/account/exit_worth.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

msg::Price price_of(std::uint32_t generation, msg::SpeculationMode mode) {
    msg::Price price{};
    price.generation = generation;
    price.mode = mode;
    price.token_us = 1000;
    price.plain_us = 1000;
    price.row_us = 60;
    return price;
}

void evaluate(ExitWorth& worth, int times, std::size_t right, double micros, bool delayed = true) {
    for (int i = 0; i < times; ++i) {
        worth.spent(micros, delayed, 1);
        worth.learned(right);
    }
}

}  // namespace

TEST_CASE("an exit that is never right is not evaluated any more, until a probe") {
    ExitWorth worth{false};
    worth.take(price_of(1, msg::SpeculationMode::On));
    CHECK(worth.pays());
    evaluate(worth, 80, 0, 200);
    CHECK_FALSE(worth.pays());
    worth.take(price_of(2, msg::SpeculationMode::Probe));
    CHECK(worth.pays());
    evaluate(worth, 4, 1, 200);
    worth.take(price_of(3, msg::SpeculationMode::On));
    CHECK(worth.pays());
}

TEST_CASE("an exit that is right pays for its time and its rows") {
    ExitWorth worth{false};
    worth.take(price_of(1, msg::SpeculationMode::On));
    evaluate(worth, 80, 1, 500);
    CHECK(worth.pays());
    CHECK(worth.cost_us() == doctest::Approx(560).epsilon(0.01));
    CHECK(worth.gain_us() == doctest::Approx(1000).epsilon(0.05));
}

TEST_CASE("a token that was started early saves its later layers alone") {
    ExitWorth worth{false, 0.25};
    worth.take(price_of(1, msg::SpeculationMode::On));
    evaluate(worth, 80, 1, 300);
    CHECK(worth.gain_us() == doctest::Approx(250).epsilon(0.05));
    CHECK_FALSE(worth.pays());
}

TEST_CASE("time that no batch waited for counts in part, an interrupted evaluation not at all") {
    ExitWorth worth{false};
    worth.take(price_of(1, msg::SpeculationMode::On));
    evaluate(worth, 200, 0, 400, false);
    CHECK(worth.cost_us() == doctest::Approx(400 * ExitWorth::kIdleShare + 60).epsilon(0.01));
    worth.spent(2'000'000, true, 1);
    CHECK(worth.cost_us() < 1.3 * (400 * ExitWorth::kIdleShare + 60));
}

TEST_CASE("off is off, an old price changes nothing, and always on is always on") {
    ExitWorth worth{false};
    worth.take(price_of(5, msg::SpeculationMode::Off));
    CHECK_FALSE(worth.pays());
    worth.take(price_of(4, msg::SpeculationMode::On));
    CHECK_FALSE(worth.pays());
    worth.forget_price();
    CHECK(worth.pays());
    ExitWorth always{true};
    always.take(price_of(1, msg::SpeculationMode::Off));
    CHECK(always.pays());
}

TEST_CASE("rows that a round may not have are not caused") {
    ExitWorth worth{false};
    CHECK(worth.rows_max() == kVerifyRowsMax);  // before anything is known
    msg::Price price = price_of(1, msg::SpeculationMode::On);
    REQUIRE(price.token_us > 0.0F);
    price.candidates_max = 7;
    worth.take(price);
    CHECK(worth.rows_max() == 7);
    price.candidates_max = 0;
    price.generation += 1;
    worth.take(price);
    CHECK(worth.rows_max() == 1);
}

#include "launch/serve/body_budget.hpp"

#include <optional>

#include <doctest/doctest.h>

using namespace paceline::serve;  // NOLINT(google-build-using-namespace): a test reads like prose

TEST_CASE("bodies share a budget, each with the bytes that have arrived") {
    BodyBudget budget{.most = 100};
    std::optional<BodyShare> first;
    first.emplace(budget);
    const BodyShare waits{budget};  // its body was announced: that takes nothing
    CHECK(budget.held == 0);
    CHECK(first->hold(0));
    CHECK(first->hold(60));
    CHECK(first->hold(60));
    {
        BodyShare second{budget};
        CHECK(second.hold(30));
        CHECK_FALSE(second.hold(41));
        CHECK(budget.held == 90);
        CHECK(second.hold(40));
        CHECK_FALSE(first->hold(61));
    }
    CHECK(first->hold(100));
    first.reset();
    CHECK(budget.held == 0);
    BodyShare too_long{budget};
    CHECK_FALSE(too_long.hold(101));
    CHECK(budget.held == 0);
}

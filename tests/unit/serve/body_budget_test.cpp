#include "launch/serve/body_budget.hpp"

#include <optional>

#include <doctest/doctest.h>

using namespace paceline::serve;  // NOLINT(google-build-using-namespace): a test reads like prose

TEST_CASE("bodies share a budget, and what a body did not need goes to others") {
    BodyBudget budget{.most = 100};
    std::optional<BodyShare> first;
    first.emplace(budget, 60);
    REQUIRE(first->taken());
    CHECK_FALSE(BodyShare{budget, 41}.taken());
    CHECK(budget.held == 60);
    first->shrink_to(10);
    {
        const BodyShare second{budget, 90};
        CHECK(second.taken());
        CHECK_FALSE(BodyShare{budget, 1}.taken());
        CHECK(BodyShare{budget, 0}.taken());
    }
    first.reset();
    CHECK(budget.held == 0);
    CHECK_FALSE(BodyShare{budget, 101}.taken());
    CHECK(budget.held == 0);
}

#include "launch/session/service/order_places.hpp"

#include <thread>

#include <doctest/doctest.h>

#include "launch/session/service/order_inbox.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using namespace std::chrono_literals;

TEST_CASE("a place is given while one is free, and no id twice") {
    OrderPlaces places{2};
    const std::optional<AnswerId> first = places.take();
    const std::optional<AnswerId> second = places.take();
    REQUIRE(first);
    REQUIRE(second);
    CHECK_FALSE(places.take());
    CHECK(places.taken() == 2);
    places.leave();
    const std::optional<AnswerId> third = places.take();
    REQUIRE(third);
    CHECK(*first < *second);
    CHECK(*second < *third);
}

TEST_CASE("who waits until all places are left goes on with the last, or when the time is over") {
    OrderPlaces places{1};
    CHECK(places.wait_empty(0ms));
    REQUIRE(places.take());
    CHECK_FALSE(places.wait_empty(1ms));
    std::thread loop{[&] { places.leave(); }};
    CHECK(places.wait_empty(60s));
    loop.join();
}

TEST_CASE("the loop is told of the first order since it looked, and gets all of them in order") {
    OrderInbox inbox;
    CHECK(inbox.add({.id = AnswerId{1}, .order = {}, .stream = nullptr}));
    CHECK_FALSE(inbox.add({.id = AnswerId{2}, .order = {}, .stream = nullptr}));
    const std::vector<TakenOrder> orders = inbox.take_all();
    REQUIRE(orders.size() == 2);
    CHECK(orders[0].id == AnswerId{1});
    CHECK(inbox.take_all().empty());
    CHECK(inbox.add({.id = AnswerId{3}, .order = {}, .stream = nullptr}));
}

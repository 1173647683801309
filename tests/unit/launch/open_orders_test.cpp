#include "launch/session/open_orders.hpp"

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

TEST_CASE("who waits for the orders of a session goes on when the last of them is closed") {
    OpenOrders orders;
    CHECK(orders.wait_closed().ok());  // none was opened
    orders.opened();
    orders.opened();
    orders.closed();
    std::thread loop{[&] {
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
        orders.closed();
    }};
    CHECK(orders.wait_closed().ok());
    CHECK_FALSE(orders.ended().has_value());
    loop.join();
}

TEST_CASE("who waits for open orders gets the reason when the loop ends without closing them") {
    OpenOrders orders;
    orders.opened();
    std::thread loop{[&] { orders.end(Error{Errc::PeerGone, "the last stage is lost"}); }};
    orders.wait_ended();
    const Status ended = orders.wait_closed();
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.error().what == "the last stage is lost");
    CHECK(orders.ended().has_value());
    loop.join();
}

TEST_CASE("time counts while an order is open, and from the restart of the clock on") {
    const auto pass = [] { std::this_thread::sleep_for(std::chrono::milliseconds{3}); };
    OpenOrders orders;
    pass();
    CHECK(orders.seconds() == 0.0);
    orders.opened();
    pass();
    CHECK(orders.seconds() >= 0.003);
    orders.closed();
    const double closed = orders.seconds();
    pass();
    CHECK(orders.seconds() == closed);
    orders.restart_clock();
    CHECK(orders.seconds() == 0.0);
}

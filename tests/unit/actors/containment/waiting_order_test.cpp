#include "actors/conductor/waiting_order.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

RequestRecord record_of_turn(std::uint64_t turn) {
    RequestRecord record;
    record.turn = turn;
    return record;
}

}  // namespace

TEST_CASE("a request that does not fit is passed until the limit, counted from when it was first") {
    WaitingOrder order;
    const RequestRecord early = record_of_turn(1);
    const RequestRecord late = record_of_turn(2);
    const Micros begin{5'000};
    const Micros limit = WaitingOrder::kPassLimit;
    CHECK(order.may_pass(late, begin));
    CHECK(order.may_pass(early, begin + Micros{10}));  // it is the first from now on
    CHECK(order.may_pass(late, begin + limit));
    CHECK(order.may_pass(early, begin + limit + Micros{9}));
    CHECK_FALSE(order.may_pass(early, begin + limit + Micros{10}));
    order.left(late);
    CHECK_FALSE(order.may_pass(late, begin + limit + Micros{10}));
    order.left(early);
    CHECK(order.may_pass(late, begin + limit + Micros{10}));
}

TEST_CASE("no request passes a preempted one, which waits until another one has ended") {
    WaitingOrder order;
    RequestRecord record = record_of_turn(3);
    CHECK_FALSE(order.waits_for_end(record));
    order.ended();
    record.preempted = true;
    order.preempted(record);
    CHECK(order.waits_for_end(record));
    CHECK_FALSE(order.may_pass(record, Micros{0}));
    order.ended();
    CHECK_FALSE(order.waits_for_end(record));
}

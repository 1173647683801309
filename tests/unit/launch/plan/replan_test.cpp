#include "launch/plan/replan.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

TEST_CASE("an error of more than a fifth, three looks in a row, asks for another plan") {
    Replan slower{1.5};
    CHECK(!slower.measured(1.1));
    CHECK(!slower.measured(1.1));
    CHECK(slower.measured(1.1));
    Replan faster{1.0};
    CHECK(!faster.measured(1.3));
    CHECK(!faster.measured(1.3));
    CHECK(faster.measured(1.3));
}

TEST_CASE("a small error never does, nor one that comes and goes or changes its side") {
    Replan close{1.5};
    for (int i = 0; i < 100; ++i) CHECK(!close.measured(i % 2 == 0 ? 1.25 : 1.75));
    Replan now_and_then{1.5};
    for (int i = 0; i < 99; ++i) CHECK(!now_and_then.measured(i % 3 == 0 ? 1.4 : 1.0));
    Replan both{1.5};
    for (int i = 0; i < 100; ++i) CHECK(!both.measured(i % 2 == 0 ? 1.0 : 2.0));
}

TEST_CASE("the same error is told once") {
    Replan replan{1.5};
    int told = 0;
    for (int i = 0; i < 100; ++i) told += replan.measured(1.0) ? 1 : 0;
    CHECK(told == 1);
    for (int i = 0; i < 100; ++i) told += replan.measured(0.7) ? 1 : 0;
    CHECK(told == 2);
}

TEST_CASE("without a prediction the first look is one") {
    Replan replan{0.0};
    for (int i = 0; i < 10; ++i) CHECK(!replan.measured(1.2));
    CHECK(!replan.measured(0.8));
    CHECK(!replan.measured(0.8));
    CHECK(replan.measured(0.8));
}

TEST_CASE("another method must gain more than loading it costs, and a lead") {
    // 30 s of plain decoding take 30 s at 1.0 and 20 s at 1.5: 10 s are saved.
    Replan::Change change{
        .gain = 1.0, .other_gain = 1.5, .plain_seconds_left = 30, .load_seconds = 9.9};
    CHECK(Replan::pays(change));
    change.load_seconds = 10.1;
    CHECK(!Replan::pays(change));
    change = {.gain = 1.0, .other_gain = 1.04, .plain_seconds_left = 1e6, .load_seconds = 1};
    CHECK(!Replan::pays(change));
    change.other_gain = 0.0;  // nothing is known of it
    CHECK(!Replan::pays(change));
}

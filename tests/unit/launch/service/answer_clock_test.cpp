#include "launch/session/service/answer_clock.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using namespace std::chrono_literals;

TEST_CASE("time in which the pipeline is not whole does not count") {
    const AnswerClock::Clock::time_point start{};
    AnswerClock clock{start};
    clock.tick(start + 10ms, true);
    clock.tick(start + 500ms, false);
    clock.tick(start + 505ms, true);
    CHECK(clock.now() == 15ms);
}

TEST_CASE("the end of all answers comes by the same time, and only if it was set") {
    const AnswerClock::Clock::time_point start{};
    AnswerClock clock{start};
    clock.tick(start + 10s, true);
    CHECK_FALSE(clock.is_past_end());
    clock.end_in(20ms);
    clock.tick(start + 10s + 20ms, true);
    CHECK_FALSE(clock.is_past_end());
    clock.tick(start + 20s, false);
    CHECK_FALSE(clock.is_past_end());
    clock.tick(start + 20s + 1ms, true);
    CHECK(clock.is_past_end());
}

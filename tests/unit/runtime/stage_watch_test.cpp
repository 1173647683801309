#include "runtime/parent/stage_watch.hpp"

#include <doctest/doctest.h>

using namespace paceline;
using namespace std::chrono_literals;

namespace {

TelemetrySnapshot computing(std::chrono::nanoseconds since, std::chrono::nanoseconds deadline) {
    TelemetrySnapshot telemetry;
    telemetry.activity = Activity::Computing;
    telemetry.since = since;
    telemetry.deadline = deadline;
    return telemetry;
}

}  // namespace

TEST_CASE("a stage hangs once its own deadline has passed, not before") {
    const StageWatch watch{5s};
    CHECK_FALSE(watch.complaint(computing(10s, 12s), 12s));
    CHECK(watch.complaint(computing(10s, 12s), 12001ms) ==
          "hangs: computing for 2001 ms, at most 2000 ms were expected");
}

TEST_CASE("a stage without a deadline is never late") {
    const StageWatch watch{5s};
    CHECK_FALSE(watch.complaint(computing(1s, 0s), 10'000s));
}

TEST_CASE("the limit of a stopped stage is the stop grace alone") {
    StageWatch watch{5s};
    watch.stopped(true, 10s);
    watch.stopped(true, 11s);
    CHECK_FALSE(watch.complaint(computing(9s, 10s), 15s));
    CHECK(watch.complaint(computing(9s, 10s), 15001ms) ==
          "was stopped and not continued for 5001 ms");
}

TEST_CASE("a deadline that passed between polls does not count at once") {
    StageWatch watch{5s};
    watch.paused(20s, 10s);
    CHECK_FALSE(watch.complaint(computing(9s, 10s), 20400ms));
    CHECK(watch.complaint(computing(9s, 10s), 20501ms));
}

TEST_CASE(
    "after a pause of everything a stage has the rest of its time, however long the pause was") {
    StageWatch watch{5s};
    const TelemetrySnapshot job = computing(10s, 40s);
    CHECK_FALSE(watch.complaint(job, 12s));
    watch.paused(1012s, 1000s);  // the job has run for two seconds
    CHECK_FALSE(watch.complaint(job, 1013s));
    CHECK_FALSE(watch.complaint(job, 1040s));
    watch.paused(1100s, 60s);
    CHECK_FALSE(watch.complaint(job, 1100s));
    CHECK(watch.complaint(job, 1101s) ==
          "hangs: computing for 31000 ms, at most 30000 ms were expected");
    // What began afterwards is not moved, and what began within the pause by the rest of it.
    CHECK(watch.complaint(computing(1100s, 1101s), 1102s));
    CHECK_FALSE(watch.complaint(computing(1090s, 1095s), 1104s));
    CHECK(watch.complaint(computing(1090s, 1095s), 1106s));
}

TEST_CASE("a stage that hangs is found by a caller that is always late, too") {
    StageWatch watch{5s};
    const TelemetrySnapshot job = computing(10s, 12s);
    std::chrono::nanoseconds now = 11s;
    std::optional<std::string> complaint;
    for (int looks = 0; looks < 40 && !complaint; ++looks) {
        now += 2s;
        watch.paused(now, 2s);
        complaint = watch.complaint(job, now);
    }
    CHECK(complaint);
    // Of what began a moment ago it is not said.
    CHECK_FALSE(watch.complaint(computing(now - 1s, now - 500ms), now));
}

TEST_CASE("a stage that was stopped while everything was frozen keeps its stop grace") {
    StageWatch watch{5s};
    watch.stopped(true, 10s);
    watch.paused(111s, 100s);
    CHECK_FALSE(watch.complaint(computing(9s, 10s), 114s));
    CHECK(watch.complaint(computing(9s, 10s), 116s));
}

TEST_CASE("a stage that was continued gets a moment to publish a new deadline") {
    StageWatch watch{5s};
    watch.stopped(true, 10s);
    watch.stopped(false, 12s);
    CHECK_FALSE(watch.complaint(computing(9s, 10s), 12400ms));
    CHECK(watch.complaint(computing(9s, 10s), 12500ms));
}

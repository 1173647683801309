#include "runtime/loop/loop_telemetry.hpp"

#include <chrono>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;
using namespace std::chrono_literals;

namespace {

/// A block with a trace ring, its writer and its reader.
struct PublishedLoop {
    explicit PublishedLoop(Micros hang_limit)
        : file{StageTelemetry::create(StageId{1}, Epoch{1}, "segment-1", 8).value()},
          block{StageTelemetry::attach(ShmRegion::attach(file.fd(), 1).value()).value()},
          view{StageTelemetryView::attach(file.fd()).value()},
          telemetry{block, hang_limit, 2ms} {}

    /// From the begin of the activity; 0: none.
    [[nodiscard]] std::chrono::nanoseconds limit() const {
        const TelemetrySnapshot now = view.snapshot();
        return now.deadline.count() == 0 ? 0ns : now.deadline - now.since;
    }

    ShmFile file;
    StageTelemetry block;
    StageTelemetryView view;
    LoopTelemetry telemetry;
};

constexpr JobLabel kPrefill{.name = "prefill", .rows = 4};

}  // namespace

TEST_CASE("an activity has its expected time and the hang limit until its deadline") {
    PublishedLoop loop{1s};
    loop.telemetry.begin_handling();
    CHECK(loop.limit() == 1s);
    loop.telemetry.begin_wait(20ms);
    CHECK(loop.limit() == 1020ms);
    (void)loop.telemetry.begin_job(kPrefill);  // ten times four rows of 2 ms
    CHECK(loop.limit() == 1080ms);
    CHECK(loop.view.snapshot().activity == Activity::Computing);
    CHECK(loop.view.snapshot().job == job_name_index("prefill"));
}

TEST_CASE("without a hang limit neither a job nor a wait has a deadline") {
    PublishedLoop loop{0s};
    (void)loop.telemetry.begin_job(kPrefill);
    CHECK(loop.limit() == 0s);
    loop.telemetry.begin_wait(20ms);
    CHECK(loop.limit() == 0s);
}

TEST_CASE("a job that has ended is counted, traced and in the record of its name") {
    PublishedLoop loop{1s};
    const Micros start = loop.telemetry.begin_job(kPrefill);
    loop.telemetry.end_job(kPrefill, start - 3ms, JobOutcome::Done);
    const TelemetrySnapshot now = loop.view.snapshot();
    CHECK(now.activity == Activity::Handling);
    CHECK(now.counter(Counter::Jobs) == 1);
    CHECK(now.counter(Counter::JobMicros) >= 3'000);
    CHECK(now.jobs[job_name_index("prefill")].longest_us >= 3'000);
    CHECK(now.jobs[job_name_index("prefill")].most_rows == 4);
    const std::vector<TraceEvent> events = loop.view.trace();
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == TraceKind::Job);
    CHECK(events[0].time_us == (start - 3ms).count());
    CHECK(events[0].count == 4);
}

TEST_CASE("a wait counts its time, and as a sleep only if the loop slept") {
    PublishedLoop loop{1s};
    loop.telemetry.end_wait(steady_now() - 2ms, false);
    CHECK(loop.view.snapshot().counter(Counter::Sleeps) == 0);
    loop.telemetry.end_wait(steady_now() - 2ms, true);
    CHECK(loop.view.snapshot().counter(Counter::Sleeps) == 1);
    CHECK(loop.view.snapshot().counter(Counter::WaitMicros) >= 4'000);
}

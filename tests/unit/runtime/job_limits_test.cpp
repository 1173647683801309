#include "runtime/loop/job_limits.hpp"

#include <doctest/doctest.h>

#include "runtime/parent/stage_watch.hpp"

using namespace paceline;
using namespace std::chrono_literals;

namespace {

JobLabel prefill(std::uint32_t rows) {
    return {.name = "prefill", .rows = rows};
}

struct Bench {
    StageTelemetry telemetry = StageTelemetry::local(StageId{1}, Epoch{1}, "segment-1");
    JobLimits limits{telemetry, 2ms};
};

}  // namespace

TEST_CASE("a job may take ten times the longest of its name, and more with more rows than any") {
    Bench bench;
    bench.limits.note(prefill(100), 1s, JobOutcome::Done);
    bench.limits.note(prefill(50), 2s, JobOutcome::Done);
    CHECK(bench.limits.expected(prefill(1)) == 20s);
    CHECK(bench.limits.expected(prefill(100)) == 20s);
    CHECK(bench.limits.expected(prefill(150)) == 20s);  // by its rows 15 s
    CHECK(bench.limits.expected(prefill(400)) == 40s);
}

TEST_CASE("a first job may take ten times what its rows take, as measured before the run") {
    Bench bench;
    CHECK(bench.limits.expected(prefill(1)) == 20ms);
    CHECK(bench.limits.expected(prefill(512)) == 10240ms);
    CHECK(bench.limits.expected({.name = "optimise"}) == 20ms);  // of no rows
    CHECK(JobLimits{bench.telemetry, 0ms}.expected(prefill(512)) == 0ms);
}

TEST_CASE("a job that was cancelled does not shorten the limit of those with as many rows") {
    Bench bench;
    bench.limits.note(prefill(512), 1ms, JobOutcome::Cancelled);
    CHECK(bench.limits.expected(prefill(512)) == 10240ms);
    bench.limits.note(prefill(8), 1s, JobOutcome::Done);
    CHECK(bench.limits.expected(prefill(512)) == 640s);
}

TEST_CASE("an incarnation inherits the records of its predecessor") {
    Bench bench;
    bench.limits.note(prefill(100), 1s, JobOutcome::Done);
    TelemetrySnapshot dead;
    dead.jobs[job_name_index("prefill")] = bench.telemetry.job_record(job_name_index("prefill"));
    const ShmFile file = StageTelemetry::create(StageId{1}, Epoch{2}, "segment-1", 0,
                                                inherited_jobs(dead, false, 120s))
                             .value();
    StageTelemetry next = StageTelemetry::attach(ShmRegion::attach(file.fd(), 1).value()).value();
    CHECK(JobLimits{next, 0ms}.expected(prefill(200)) == 20s);
}

TEST_CASE("a job that was taken for a hang may take ten times as long in the next incarnation") {
    TelemetrySnapshot dead;
    dead.activity = Activity::Computing;
    dead.job = job_name_index("prefill");
    dead.since = 100s;
    dead.deadline = 110s;
    const auto longest = [&dead](bool hung) {
        return inherited_jobs(dead, hung, 120s)[dead.job].longest_us;
    };
    CHECK(longest(false) == 0);
    CHECK(longest(true) == 10'000'000);
    dead.deadline = 1000s;
    CHECK(longest(true) == 12'000'000);  // so that no limit is longer than 120 s
    dead.deadline = 50s;                 // whatever it wrote there
    CHECK(longest(true) == 0);
    dead.activity = Activity::Handling;
    dead.deadline = 110s;
    CHECK(longest(true) == 0);
}

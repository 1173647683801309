#include "launch/session/session_figures.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "actors/protocol/counters.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

/// Two segments, each in a process of its own, and the blocks that their incarnations write.
struct CountingSession {
    CountingSession() {
        for (const StageId id : {StageId{1}, StageId{2}}) {
            config.stages.emplace_back();
            placement.stages.emplace_back().id = id;
            placement.processes.emplace_back().stages = {id};
        }
    }
    StageTelemetry start(StageId id, Epoch epoch) {
        const ShmFile file = StageTelemetry::create(id, epoch, "segment", 0).value();
        records.push_back({id, epoch, "segment", StageTelemetryView::attach(file.fd()).value()});
        return StageTelemetry::attach(ShmRegion::attach(file.fd(), 1).value()).value();
    }

    PipelineConfig config;
    ModelConfig model;
    Placement placement;
    std::vector<StageRecord> records;
    SessionFigures figures{config, model, placement};
};

}  // namespace

TEST_CASE("a process that counted before a reset has counted what came after it") {
    CountingSession session;
    StageTelemetry first = session.start(StageId{1}, Epoch{1});
    first.count(counters::kPrefillRows, 100);
    session.figures.reset(session.records);
    first.count(counters::kPrefillRows, 10);
    // One that starts later counts from zero.
    StageTelemetry second = session.start(StageId{2}, Epoch{1});
    second.count(counters::kPrefillRows, 10);
    CHECK(session.figures.prefilled_rows(session.records) == 10);
    const PipelineStats stats = session.figures.stats(session.records, 1.0);
    CHECK(stats.counter(counters::kPrefillRows) == 20);
}

TEST_CASE("the incarnations of a process add up, to shares of the time that is covered") {
    CountingSession session;
    session.start(StageId{1}, Epoch{1}).count(Counter::JobMicros, 200'000);
    StageTelemetry next = session.start(StageId{1}, Epoch{2});
    next.count(Counter::JobMicros, 300'000);
    next.count(Counter::WaitMicros, 9'000'000);  // begun before
    next.count(counters::kBatches, 7);
    const PipelineStats stats = session.figures.stats(session.records, 2.0);
    REQUIRE(stats.processes.size() == 2);
    CHECK(stats.processes[0].busy == doctest::Approx(0.25));
    CHECK(stats.processes[0].waiting == doctest::Approx(0.85));
    CHECK(stats.processes[1].busy == 0.0);
    CHECK(stats.target_forwards == 7);
    CHECK(stats.seconds == 2.0);
}

TEST_CASE("verdicts are those of the answers that have ended since the reset") {
    CountingSession session;
    VerdictTally answer;
    answer.emitted = 3;
    session.figures.add(answer);
    session.figures.reset(session.records);
    session.figures.add(answer);
    session.figures.add(answer);
    CHECK(session.figures.stats(session.records, 0.0).verdicts.emitted == 6);
}

// The rates and the table of `paceline top`, from samples made by hand.
#include "launch/cli/top/top_table.hpp"

#include <chrono>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "actors/protocol/counters.hpp"

using namespace paceline;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t kPid = 1234;

StageSample stage(std::uint16_t id, const std::string& name) {
    StageSample sample;
    sample.telemetry.stage = StageId{id};
    sample.telemetry.epoch = Epoch{1};
    sample.telemetry.pid = kPid + id;
    sample.telemetry.name = name;
    sample.telemetry.activity = Activity::Handling;
    sample.telemetry.since = 100s;
    return sample;
}

std::uint64_t& counter(PipelineSample& sample, std::size_t index, Counter which) {
    return sample.stages[index].telemetry.counters[static_cast<std::size_t>(which)];
}

/// Two samples, two seconds apart, of a conductor and one segment that did nothing.
struct Pair {
    PipelineSample before;
    PipelineSample after;

    Pair() {
        before.conductor = static_cast<pid_t>(kPid);
        before.at = 100s;
        before.stages = {stage(0, "conductor"), stage(1, "segment-1")};
        after = before;
        after.at = 102s;
    }
    [[nodiscard]] StageRates segment() const { return stage_rates(before, after, StageId{1}); }
};

}  // namespace

TEST_CASE("rates are what grew between two samples, by the time between them") {
    Pair pair;
    counter(pair.before, 1, counters::kBatches) = 100;
    counter(pair.after, 1, counters::kBatches) = 120;
    counter(pair.before, 1, counters::kBatchRows) = 500;
    counter(pair.after, 1, counters::kBatchRows) = 600;
    counter(pair.after, 1, Counter::ChannelFull) = 3;
    counter(pair.after, 1, Counter::JobMicros) = 1'500'000;
    counter(pair.after, 1, Counter::WaitMicros) = 400'000;
    const StageRates rates = pair.segment();
    CHECK(rates.batches_per_second.value() == doctest::Approx(10));
    CHECK(rates.rows_per_batch.value() == doctest::Approx(5));
    CHECK(rates.full_per_second.value() == doctest::Approx(1.5));
    CHECK(rates.busy.value() == doctest::Approx(0.75));
    CHECK(rates.waiting.value() == doctest::Approx(0.2));
}

TEST_CASE("a stage without a batch has no rows per batch") {
    const Pair pair;
    CHECK(pair.segment().batches_per_second.value() == 0);
    CHECK_FALSE(pair.segment().rows_per_batch.has_value());
}

TEST_CASE("a job that is not over counts as busy for as long as it runs, and only once") {
    Pair pair;
    pair.after.stages[1].telemetry.activity = Activity::Computing;
    pair.after.stages[1].telemetry.since = 101s;
    CHECK(pair.segment().busy.value() == doctest::Approx(0.5));
    // It had begun 3 s before the first sample and ended half a second after it.
    pair.before.stages[1].telemetry.activity = Activity::Computing;
    pair.before.stages[1].telemetry.since = 97s;
    pair.after.stages[1].telemetry.activity = Activity::Handling;
    counter(pair.after, 1, Counter::JobMicros) = 3'500'000;
    CHECK(pair.segment().busy.value() == doctest::Approx(0.25));
}

TEST_CASE("a restarted stage has counted from zero since") {
    Pair pair;
    counter(pair.before, 1, counters::kBatches) = 1000;
    counter(pair.after, 1, counters::kBatches) = 8;
    pair.after.stages[1].telemetry.epoch = Epoch{2};
    CHECK(pair.segment().batches_per_second.value() == doctest::Approx(4));
}

TEST_CASE("a counter that went backwards counts as unchanged, shares stay within 0 and 1") {
    Pair pair;
    counter(pair.before, 1, counters::kBatches) = 1000;
    counter(pair.after, 1, counters::kBatches) = 8;
    counter(pair.after, 1, Counter::JobMicros) = ~std::uint64_t{0};
    CHECK(pair.segment().batches_per_second.value() == 0);
    CHECK(pair.segment().busy.value() == 1.0);
}

TEST_CASE("there are no rates for a stage that was not there before, or without time between") {
    Pair pair;
    CHECK_FALSE(stage_rates(pair.before, pair.after, StageId{7}).batches_per_second.has_value());
    pair.after.at = pair.before.at;
    CHECK_FALSE(pair.segment().batches_per_second.has_value());
    CHECK_FALSE(pipeline_rates(pair.before, pair.after).tokens_per_second.has_value());
}

TEST_CASE("tokens are the conductor's, acceptance is of what was verified in between") {
    Pair pair;
    counter(pair.after, 0, counters::kTokensCommitted) = 50;
    counter(pair.after, 1, counters::kTokensCommitted) = 999;
    counter(pair.before, 1, counters::kTokensProposed) = 100;
    counter(pair.after, 1, counters::kTokensProposed) = 140;
    counter(pair.before, 1, counters::kTokensAccepted) = 0;
    counter(pair.after, 1, counters::kTokensAccepted) = 30;
    const PipelineRates rates = pipeline_rates(pair.before, pair.after);
    CHECK(rates.tokens_per_second.value() == doctest::Approx(25));
    CHECK(rates.acceptance.value() == doctest::Approx(0.75));
    counter(pair.after, 1, counters::kTokensProposed) = 100;
    CHECK_FALSE(pipeline_rates(pair.before, pair.after).acceptance.has_value());
}

TEST_CASE("a state says what is done for how long, late past its deadline, gone without process") {
    StageSample sample = stage(1, "a");
    sample.telemetry.activity = Activity::Computing;
    CHECK(state_text(sample, 100s + 12ms) == "computing 12ms");
    sample.telemetry.deadline = 101s;
    CHECK(state_text(sample, 101s) == "computing 1.0s");
    CHECK(state_text(sample, 112s) == "computing 12s late");
    sample.process = ProcessState::Stopped;
    CHECK(state_text(sample, 100s + 300ms) == "stopped 0.3s");
    sample.process = ProcessState::Gone;
    CHECK(state_text(sample, 112s) == "gone");
}

TEST_CASE("the table has a line for the pipeline, one of headings and one for each stage") {
    Pair pair;
    counter(pair.after, 0, counters::kTokensCommitted) = 50;
    counter(pair.after, 0, Counter::Restarts) = 2;
    counter(pair.after, 0, counters::kFenced) = 1;
    counter(pair.after, 1, counters::kFenced) = 4;
    counter(pair.after, 1, counters::kBatches) = 20;
    pair.after.stages[1].telemetry.gauges[static_cast<std::size_t>(gauges::kQueueDepth)] = 3;
    const std::vector<std::string> lines = table_lines(pair.before, pair.after);
    REQUIRE(lines.size() == 4);
    CHECK(lines[0] == "pipeline 1234: 25.0 tokens/s, acceptance -, fenced 5, restarts 2");
    CHECK(lines[1] ==
          "stage          pid  ep state               queue batch/s  rows busy wait full/s");
    CHECK(lines[2] ==
          "conductor     1234   1 handling 2.0s           0    0.00     -   0%   0%   0.00");
    CHECK(lines[3] ==
          "segment-1     1235   1 handling 2.0s           3    10.0  0.00   0%   0%   0.00");
}

TEST_CASE("a wide terminal shows the names of stages whole, and no wider column than they need") {
    Pair pair;
    pair.after.stages[1].telemetry.name = "verifies-the-first-layers";
    const auto name_of_stage = [&](std::size_t columns) {
        const std::string line = table_lines(pair.before, pair.after, columns)[3];
        return line.substr(0, line.find(' '));
    };
    CHECK(name_of_stage(79) == "verifies-~");
    CHECK(name_of_stage(84) == "verifies-the-f~");
    CHECK(name_of_stage(94) == "verifies-the-first-layers");
    CHECK(table_lines(pair.before, pair.after, 200)[3].size() == 79 + 15);
}

TEST_CASE("no line is longer than a terminal of 80 columns, whatever the numbers are") {
    Pair pair;
    for (std::size_t i = 0; i < kCounters; ++i) {
        counter(pair.after, 0, static_cast<Counter>(i)) = ~std::uint64_t{0};
        counter(pair.after, 1, static_cast<Counter>(i)) = 123'456'789 * (i + 1);
    }
    TelemetrySnapshot& telemetry = pair.after.stages[1].telemetry;
    telemetry.name = std::string(64, 'x');
    telemetry.pid = 4'000'000'000;
    telemetry.epoch = Epoch{4'000'000'000};
    telemetry.since = 0s;
    telemetry.deadline = 1s;
    telemetry.activity = Activity::Computing;
    telemetry.gauges.fill(~std::uint64_t{0});
    const std::vector<std::string> lines = table_lines(pair.before, pair.after);
    for (const std::string& line : lines) CHECK(line.size() <= 79);
    CHECK(lines[3].starts_with("xxxxxxxxx~ "));
}

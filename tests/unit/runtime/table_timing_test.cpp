#include "runtime/simulation/table_timing.hpp"

#include <doctest/doctest.h>

using namespace paceline;
using namespace std::chrono_literals;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};

CostRecord record(std::string stage,
                  std::string model,
                  std::uint32_t layers,
                  std::uint32_t rows,
                  double seconds) {
    return {.stage = std::move(stage),
            .fingerprint = std::move(model),
            .layers = layers,
            .rows = rows,
            .seconds = seconds};
}

CostTable a_table() {
    return CostTable::of({record("verify", "m", 10, 1, 0.010), record("verify", "m", 10, 9, 0.018),
                          record("exit", "m", 10, 1, 0.007), record("head", "m", 0, 1, 0.002),
                          record("head", "m", 0, 5, 0.004), record("verify", "n", 10, 1, 0.010),
                          record("lm", "n", 0, 1, 0.5), record("a>b", "-", 0, 1, 0.000'010),
                          record("a>b", "-", 0, 11, 0.000'060)});
}

struct Asked {
    explicit Asked(std::map<StageId, CostsOfProcess> processes)
        : timing{table, std::move(processes), 7us} {}
    SimTime job(const JobLabel& label) { return timing.job(kA, label, random); }
    SimTime hop(StageId from, StageId to, std::uint32_t rows) {
        EdgeSpec edge;
        edge.from = from;
        edge.to = to;
        return timing.hop(edge, rows, random);
    }
    CostTable table = a_table();
    TableTiming timing;
    SimRandom random{1};
};

Asked model(const char* fingerprint) {
    return Asked{{{kA, {.name = "a", .fingerprint = fingerprint}}, {kB, {.name = "b"}}}};
}

}  // namespace

TEST_CASE("a job with heads costs what the table says of its rows, and of heads for as many rows") {
    Asked asked = model("m");
    CHECK(asked.job({.name = "verify", .rows = 5, .layers = 10}) == 14ms);
    CHECK(asked.job({.name = "verify", .rows = 5, .layers = 10, .heads = 3}) == 17ms);
    CHECK(asked.job({.name = "verify", .rows = 5, .layers = 5, .heads = 5}) == 11ms);
    CHECK(asked.job({.name = "exit", .rows = 1, .layers = 10, .heads = 1}) == 9ms);
    CHECK_FALSE(asked.timing.error());
}

TEST_CASE("contention is what neighbours add to a job with its share of the threads") {
    const auto of = [](std::uint32_t threads, std::uint32_t neighbours, double seconds) {
        CostRecord made = record("verify", "m", 10, 1, seconds);
        made.threads = threads;
        made.neighbours = neighbours;
        return made;
    };
    const CostTable table =
        CostTable::of({of(2, 0, 0.006), of(1, 0, 0.010), of(1, 1, 0.013), of(1, 2, 0.020)});
    TableTiming timing{table, {{kA, {.name = "a", .fingerprint = "m", .threads = 2}}}, SimTime{0}};
    const JobLabel label{.name = "verify", .rows = 1, .layers = 10};
    SimRandom random{1};
    CHECK(timing.job(kA, label, random) == 6ms);
    CHECK(timing.contention(kA, label, 0) == doctest::Approx(1.0));
    CHECK(timing.contention(kA, label, 1) == doctest::Approx(1.3));
    CHECK(timing.contention(kA, label, 2) == doctest::Approx(2.0));
    CHECK_FALSE(timing.error());
    Asked none = model("m");  // of a table without neighbours
    CHECK(none.timing.contention(kA, label, 1) == doctest::Approx(1.0));
}

TEST_CASE("a job of heads alone costs the heads") {
    Asked asked = model("m");
    CHECK(asked.job({.name = "exit", .rows = 0, .layers = 0, .heads = 5}) == 4ms);
    CHECK_FALSE(asked.timing.error());
}

TEST_CASE("where the table has no heads of this model its jobs are taken to include them") {
    Asked asked = model("n");
    CHECK(asked.job({.name = "verify", .rows = 1, .layers = 10, .heads = 4}) == 10ms);
    CHECK_FALSE(asked.timing.error());
    SUBCASE("but a job of nothing else is a question without an answer") {
        CHECK(asked.job({.name = "exit", .rows = 0, .heads = 4}) == 0ms);
        CHECK(asked.timing.error());
    }
}

TEST_CASE("heads may stand in the table under another name") {
    Asked asked{{{kA, {.name = "a", .fingerprint = "n", .jobs = {{"head", "lm"}}}}}};
    CHECK(asked.job({.name = "verify", .rows = 1, .layers = 10, .heads = 1}) == 510ms);
    CHECK_FALSE(asked.timing.error());
}

TEST_CASE("a transfer takes longer with more rows, each edge as the table has it") {
    Asked asked = model("m");
    CHECK(asked.hop(kA, kB, 1) == 10us);
    CHECK(asked.hop(kA, kB, 6) == 35us);
    CHECK(asked.hop(kA, kB, 11) == 60us);
    CHECK(asked.hop(kA, kB, 64) == 60us);  // beyond what was measured the nearest counts
    CHECK(asked.hop(kA, kB, 1) == 10us);   // asked again: the same, not that of the last question
    CHECK(asked.hop(kB, kA, 11) == 7us);   // no record: the default
    CHECK_FALSE(asked.timing.error());
}

// Requests that get no verdicts although no stage is lost: replayed once, then ended with an
// error; and requests that only wait, which are not affected.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/pipeline/cluster.hpp"
#include "tests/unit/actors/conductor_bench.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::conductor_test;  // NOLINT(google-build-using-namespace): likewise

namespace {

constexpr Micros kHour{3'600'000'000};
constexpr auto kVerdict = static_cast<std::uint16_t>(msg::Kind::Verdict);

/// In steps, as a loop sees time.
void pass(Bench& bench, Micros time) {
    for (Micros step{250'000}; time.count() > 0; time -= step) bench.context.pass(step);
}

bool has(const std::string& text, const std::string& part) {
    INFO(text);
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "a request without verdicts is begun anew once and then ended, saying what it waited for") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50, 51});
    bench.context.posted.clear();
    for (int i = 0; i < 1200 && bench.context.posted.empty(); ++i) pass(bench, Micros{1'000'000});
    REQUIRE(bench.context.posted.size() == 3);
    CHECK(bench.ears[0]->ends == 0);
    CHECK(bench.context.stops.size() == 3);
    CHECK(bench.context.valid_from[id] == Attempt{2});
    CHECK(bench.context.posted[0].begin.attempt == Attempt{2});
    CHECK(bench.context.posted[0].request.text == std::vector<TokenId>{0, 1, 2, 3, 50, 51});
    CHECK(bench.context.posted[0].request.replayed == 2);
    CHECK(bench.context.posted[0].request.cache_generation == 1);
    // The verdict of the first attempt comes after all.
    bench.verdict(id, 1, 6, {52});
    CHECK(bench.conductor.fenced() == 1);

    for (int i = 0; i < 1200 && bench.ears[0]->ends == 0; ++i) pass(bench, Micros{1'000'000});
    CHECK(bench.ears[0]->ends == 1);
    REQUIRE_FALSE(bench.ears[0]->status);
    CHECK(bench.ears[0]->status.error().code == Errc::PeerGone);
    const std::string& what = bench.ears[0]->status.error().what;
    CHECK(has(what, "request 1"));
    CHECK(has(what, "no verdict of segment-2"));
    CHECK(has(what, "position 6"));
    CHECK(bench.context.stops.size() == 6);
    CHECK(bench.ears[0]->tokens == std::vector<TokenId>{50, 51});
    CHECK(bench.conductor.open_requests() == 0);
    // Nothing is watched any more.
    pass(bench, Micros{2'000'000});
    CHECK(bench.context.timers.empty());
}

TEST_CASE("a request that goes on after it was begun anew may be begun anew again") {
    Bench bench;
    const RequestId id = bench.submit(request());
    for (std::uint32_t attempt = 1; attempt <= 4; ++attempt) {
        bench.verdict(id, attempt, static_cast<Position>(2 + 2 * attempt), {50});
        bench.verdict(id, attempt, static_cast<Position>(3 + 2 * attempt), {50});
        bench.context.posted.clear();
        for (int i = 0; i < 1200 && bench.context.posted.empty(); ++i) {
            pass(bench, Micros{1'000'000});
        }
        REQUIRE(bench.context.posted.size() == 3);
        CHECK(bench.context.posted[0].begin.attempt == Attempt{attempt + 1});
    }
    CHECK(bench.ears[0]->ends == 0);
}

TEST_CASE("a message that is lost between two healthy stages costs time, not the answer") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        paceline::testing::PipelineOptions options{.segments = 2, .seed = seed};
        paceline::testing::Cluster cluster{options};
        int verdicts = 0;
        cluster.world.loses = [&](StageId to, std::uint16_t kind) {
            return to == paceline::testing::segment_id(1) && kind == kVerdict &&
                   ++verdicts == static_cast<int>(1 + seed % 4);
        };
        const Request request = paceline::testing::small_request(seed);
        const auto plain = paceline::testing::plain_answer(request);
        REQUIRE(cluster.submit(request));
        cluster.run_until_ended();
        CHECK(cluster.answers[0]->status.ok());
        CHECK(cluster.answers[0]->tokens == plain.answer);
        const bool lost = verdicts >= static_cast<int>(1 + seed % 4);
        if (plain.answer.size() > 1 + seed % 4) CHECK(lost);
    }
}

TEST_CASE("when such messages are always lost the answer ends with an error, not never") {
    paceline::testing::Cluster cluster{{.segments = 2, .seed = 5}};
    cluster.world.loses = [](StageId to, std::uint16_t kind) {
        return to == paceline::testing::segment_id(1) && kind == kVerdict;
    };
    Request request = paceline::testing::small_request(5);
    request.max_tokens = 20;
    const auto plain = paceline::testing::plain_answer(request);
    REQUIRE(plain.answer.size() > 3);
    REQUIRE(cluster.submit(request));
    cluster.world.run([&] { return cluster.all_ended() || cluster.world.now > 9 * kHour; });
    REQUIRE(cluster.answers[0]->ends == 1);
    CHECK_FALSE(cluster.answers[0]->status.ok());
    // What was committed until then is the beginning of the right answer.
    const std::vector<TokenId>& tokens = cluster.answers[0]->tokens;
    REQUIRE(tokens.size() < plain.answer.size());
    CHECK(std::equal(tokens.begin(), tokens.end(), plain.answer.begin()));
}

TEST_CASE("a request that waits for a lost stage, a long prefill or slow batches is left alone") {
    ConductorPlan with = plan();
    with.recovery_limit = kHour;
    std::uint64_t rows = 0;
    SUBCASE("a stage that loads for long") {
        Bench bench{with};
        const RequestId id = bench.submit(request());
        bench.verdict(id, 1, 4, {50});
        bench.lose(kFirst);
        pass(bench, kHour / 2);
        bench.join(kFirst);
        pass(bench, with.progress.floor);
        CHECK(bench.context.posted.back().begin.attempt == Attempt{2});
        CHECK(bench.ears[0]->ends == 0);
    }
    SUBCASE("a prompt whose rows are processed one by one") {
        with.rows_done = [&rows] { return rows; };
        Bench bench{with};
        bench.submit(request(100, 120));
        for (int i = 0; i < 3; ++i) {
            pass(bench, with.progress.floor / 2);
            ++rows;
        }
        CHECK(bench.context.posted.size() == 3);
        // From now on nothing moves.
        pass(bench, with.progress.floor + Micros{3'000'000});
        CHECK(bench.context.posted.size() == 6);
    }
    SUBCASE("a prompt whose rows are not counted") {
        Bench bench{with};
        bench.submit(request(100, 120));
        pass(bench, with.progress.floor + 99 * with.progress.row_limit);
        CHECK(bench.context.posted.size() == 3);
        pass(bench, Micros{4'000'000});
        CHECK(bench.context.posted.size() == 6);
    }
    SUBCASE("another's prompt in front") {
        with.rows_done = [&rows] { return rows; };
        Bench bench{with};
        const RequestId id = bench.submit(request(4, 32));
        bench.verdict(id, 1, 4, {50});
        bench.submit(request(70, 80));
        for (int i = 0; i < 2; ++i) {
            pass(bench, with.progress.floor);
            ++rows;
        }
        CHECK(bench.context.posted.size() == 6);
    }
    SUBCASE("batches that take long") {
        Bench bench{with};
        const RequestId id = bench.submit(request());
        for (Position at = 4; at < 7; ++at) {
            bench.verdict(id, 1, at, {50});
            pass(bench, with.progress.floor / 2);
        }
        pass(bench, 4 * with.progress.floor);
        CHECK(bench.context.posted.size() == 3);
        pass(bench, with.progress.floor);
        CHECK(bench.context.posted.size() == 6);
    }
}

TEST_CASE("a pause of the conductor's own process is not counted as waiting") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50});
    const Micros floor = plan().progress.floor;
    for (int i = 0; i < 5; ++i) {
        bench.context.pass(kHour);  // at once: no timer was looked at meanwhile
        pass(bench, Micros{5'000'000});
    }
    CHECK(bench.context.posted.size() == 3);
    pass(bench, floor);
    CHECK(bench.context.posted.size() == 6);
}

TEST_CASE("without a limit nothing is watched") {
    ConductorPlan with = plan();
    with.progress.floor = Micros{0};
    Bench bench{with};
    bench.submit(request());
    CHECK(bench.context.timers.empty());
    pass(bench, Micros{kHour});
    CHECK(bench.context.posted.size() == 3);
}

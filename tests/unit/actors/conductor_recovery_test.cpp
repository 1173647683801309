// The conductor when stages are lost: attempts, replay, requests and pipelines that end with an
// error.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/conductor_bench.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::conductor_test;  // NOLINT(google-build-using-namespace): likewise

TEST_CASE("a lost segment raises the attempt, stops the old one, and is waited for") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50, 51});
    bench.context.posted.clear();
    bench.lose(kFirst);
    CHECK_FALSE(bench.conductor.pipeline_whole());
    CHECK(bench.context.valid_from[id] == Attempt{2});
    CHECK(bench.context.stops.size() == 3);
    CHECK(bench.context.stops[0].second.attempt == Attempt{1});
    CHECK(bench.context.posted.empty());
    // A verdict of the old attempt was on its way: it is counted, nothing else.
    bench.verdict(id, 1, 6, {52});
    CHECK(bench.ears[0]->tokens.size() == 2);
    CHECK(bench.conductor.fenced() == 1);
    CHECK(bench.context.counted[counters::kFenced] == 1);
    CHECK(bench.context.traced[TraceKind::Fenced] == 1);
    bench.join(kFirst);
    CHECK(bench.conductor.pipeline_whole());
    REQUIRE(bench.context.posted.size() == 3);
    for (const auto& posted : bench.context.posted) {
        CHECK(posted.begin.attempt == Attempt{2});
        CHECK(posted.request.text == std::vector<TokenId>{0, 1, 2, 3, 50, 51});
        CHECK(posted.request.replayed == 2);
        CHECK(posted.request.cache_generation == 1);
    }
    CHECK(bench.context.counted[counters::kReplays] == 1);
    bench.verdict(id, 1, 6, {52});
    CHECK(bench.ears[0]->tokens.size() == 2);
    bench.verdict(id, 2, 6, {53}, FinishReason::MaxTokens);
    CHECK(bench.ears[0]->tokens == std::vector<TokenId>{50, 51, 53});
    CHECK(bench.ears[0]->stats.replays == 1);
    CHECK(bench.ears[0]->ends == 1);
}

TEST_CASE("nothing begins before all lost segments have joined") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.lose(kFirst);
    bench.lose(kVerifier);
    bench.context.posted.clear();
    const RequestId late = bench.submit(request());
    bench.join(kFirst);
    bench.lose(kFirst);  // again, before anything began
    bench.join(kVerifier);
    CHECK(bench.context.posted.empty());
    bench.join(kFirst);
    REQUIRE(bench.context.posted.size() == 6);
    CHECK(bench.context.posted[0].begin.request == id);  // it has waited longest
    CHECK(bench.context.posted[0].begin.attempt == Attempt{2});
    CHECK(bench.context.posted[3].begin.request == late);
    CHECK(bench.context.posted[3].begin.attempt == Attempt{1});
}

TEST_CASE("a lost draft changes no attempt and gets its Begin when it is back") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.lose(kDraft);
    CHECK(bench.context.stops.empty());
    CHECK(bench.conductor.pipeline_whole());
    bench.verdict(id, 1, 4, {50});
    bench.context.posted.clear();
    const RequestId second = bench.submit(request());
    CHECK(bench.context.posted.size() == 2);  // nothing is posted to the lost one
    bench.context.posted.clear();
    bench.join(kDraft);
    REQUIRE(bench.context.posted.size() == 2);
    CHECK(bench.context.posted[0].to == kDraft);
    CHECK(bench.context.posted[0].begin.request == id);
    CHECK(bench.context.posted[0].begin.attempt == Attempt{1});
    CHECK(bench.context.posted[0].request.text == std::vector<TokenId>{0, 1, 2, 3, 50});
    CHECK(bench.context.posted[0].request.replayed == 1);
    CHECK(bench.context.posted[1].begin.request == second);
    CHECK(bench.context.counted[counters::kReplays] == 0);
}

TEST_CASE("a request that is present at a loss at every try is given up as poison") {
    Bench bench;
    const RequestId poison = bench.submit(request());
    for (int i = 0; i < 2; ++i) {
        bench.lose(kVerifier);
        CHECK(bench.ears[0]->ends == 0);
        bench.join(kVerifier);
    }
    bench.lose(kVerifier);
    CHECK(bench.ears[0]->ends == 1);
    REQUIRE_FALSE(bench.ears[0]->status);
    CHECK(bench.ears[0]->status.error().code == Errc::PeerGone);
    CHECK(bench.ears[0]->status.error().what.find("segment-2") != std::string::npos);
    bench.context.posted.clear();
    bench.join(kVerifier);
    CHECK(bench.context.posted.empty());
    bench.verdict(poison, 3, 4, {50});
    CHECK(bench.ears[0]->tokens.empty());
}

TEST_CASE(
    "quarantined requests run isolated, one at a time, and only one that was alone is ended") {
    Bench bench;
    const std::vector<RequestId> ids{bench.submit(request()), bench.submit(request())};
    const auto begun = [&bench] {  // requests of the Begins since the last look
        std::vector<RequestId> to_first;
        for (const auto& posted : bench.context.posted) {
            if (posted.to == kFirst) to_first.push_back(posted.begin.request);
        }
        bench.context.posted.clear();
        return to_first;
    };
    const auto lose_and_join = [&bench] {
        bench.lose(kVerifier);
        bench.join(kVerifier);
    };
    using Requests = std::vector<RequestId>;
    CHECK(begun() == ids);
    lose_and_join();
    CHECK(begun() == ids);  // one loss is an accident
    lose_and_join();
    CHECK(begun() == Requests{ids[0]});
    const RequestId late = bench.submit(request());
    CHECK(begun().empty());  // one is isolated now
    bench.verdict(ids[0], 3, 4, {50});
    CHECK(begun() == Requests{ids[1]});
    lose_and_join();
    CHECK(bench.ears[1]->ends == 0);  // its third loss, but another one ran beside it
    CHECK(begun() == Requests{ids[1]});
    CHECK(bench.context.excused.empty());
    bench.lose(kFirst);
    CHECK(bench.ears[1]->ends == 1);
    CHECK(bench.ears[1]->status.error().what.find("request 2 is ended") == 0);
    CHECK(bench.context.excused == std::vector{kVerifier, kVerifier, kVerifier, kFirst});
    bench.join(kFirst);
    CHECK(begun() == Requests{ids[0], late});
    CHECK(bench.ears[0]->ends + bench.ears[2]->ends == 0);
}

TEST_CASE(
    "a quarantined request that is alone at one loss, which the stage caused, is not given up") {
    Bench bench;
    const RequestId innocent = bench.submit(request());
    bench.submit(request());
    for (int i = 0; i < 3; ++i) {  // twice beside the other one, then alone
        bench.lose(kVerifier);
        bench.join(kVerifier);
    }
    CHECK(bench.ears[0]->ends == 0);
    bench.verdict(innocent, 4, 4, {50}, FinishReason::EndToken);
    CHECK(bench.ears[0]->status.ok());
    // The other one is isolated now, and stages die although it is alone.
    bench.lose(kVerifier);
    bench.join(kVerifier);
    CHECK(bench.ears[1]->ends == 0);
    bench.lose(kVerifier);
    CHECK(bench.ears[1]->ends == 1);
    CHECK_FALSE(bench.ears[1]->status.ok());
}

TEST_CASE(
    "poison explains the losses of a draft at which it was present, too, and each is excused "
    "once") {
    Bench bench;
    bench.submit(request());
    bench.submit(request());
    const auto lose = [&bench](StageId stage, int times) {
        for (int i = 0; i < times; ++i) {
            bench.lose(stage);
            bench.join(stage);
        }
    };
    lose(kDraft, 1);
    lose(kVerifier, 2);
    lose(kDraft, 2);  // while the first one is isolated
    lose(kVerifier, 2);
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.context.excused ==
          std::vector{kDraft, kVerifier, kVerifier, kDraft, kDraft, kVerifier, kVerifier});
    bench.context.excused.clear();
    lose(kVerifier, 2);
    CHECK(bench.ears[1]->ends == 1);
    CHECK(bench.context.excused == std::vector{kVerifier, kVerifier});
}

TEST_CASE("the losses of a draft alone make no request poison") {
    Bench bench;
    const RequestId id = bench.submit(request());
    for (int i = 0; i < 9; ++i) {
        bench.lose(kDraft);
        bench.join(kDraft);
    }
    bench.lose(kVerifier);
    bench.join(kVerifier);
    CHECK(bench.ears[0]->ends == 0);
    bench.verdict(id, 2, 4, {50}, FinishReason::EndToken);
    CHECK(bench.ears[0]->status.ok());
    CHECK(bench.context.excused.empty());
}

TEST_CASE("a quarantined request that is cancelled lets the others begin") {
    Bench bench;
    const RequestId first = bench.submit(request());
    const RequestId second = bench.submit(request());
    for (int i = 0; i < 2; ++i) {
        bench.lose(kVerifier);
        bench.join(kVerifier);
    }
    bench.context.posted.clear();
    bench.conductor.cancel(first);
    REQUIRE(bench.context.posted.size() == 3);
    CHECK(bench.context.posted[0].begin.request == second);
}

TEST_CASE("a token between two losses and a loss while it waits do not make a request poison") {
    Bench bench;
    const RequestId id = bench.submit(request());
    for (std::uint32_t i = 0; i < 6; ++i) {
        bench.verdict(id, i + 1, static_cast<Position>(4 + i), {50});
        bench.lose(kVerifier);
        bench.lose(kFirst);
        bench.lose(kVerifier);
        bench.join(kVerifier);
        bench.join(kFirst);
    }
    CHECK(bench.ears[0]->ends == 0);
    CHECK(bench.context.posted.back().begin.attempt == Attempt{7});
    CHECK(bench.context.posted.back().request.replayed == 6);
}

TEST_CASE("a pipeline that does not come back fails what waits for it, by name") {
    Bench bench;
    const auto pass_seconds = [&bench](int seconds) {
        for (int i = 0; i < seconds; ++i) bench.context.pass(Micros{1'000'000});
    };
    bench.submit(request());
    bench.lose(kFirst);
    pass_seconds(3);
    bench.submit(request());  // it waits from now on
    pass_seconds(2);
    CHECK(bench.ears[0]->ends == 1);
    REQUIRE_FALSE(bench.ears[0]->status);
    CHECK(bench.ears[0]->status.error().what.find("waited 5000 ms for segment-1") !=
          std::string::npos);
    CHECK(bench.ears[1]->ends == 0);
    bench.join(kFirst);
    pass_seconds(9);
    CHECK(bench.ears[1]->ends == 0);  // the timer of its wait is stale
    CHECK(bench.conductor.open_requests() == 1);
}

TEST_CASE("a wait of which each step is late ends, too") {
    Bench bench;
    bench.submit(request());
    bench.lose(kFirst);
    for (int step = 1; step <= 3; ++step) {  // two seconds, two, and two of grace for the last one
        CHECK(bench.ears[0]->ends == 0);
        bench.context.pass(Micros{10'000'000});
    }
    CHECK(bench.ears[0]->ends == 1);
    CHECK_FALSE(bench.ears[0]->status);
}

TEST_CASE("the wait for a pipeline does not go on while the whole machine stands still") {
    Bench bench;
    const auto pass_seconds = [&bench](int seconds) {
        for (int i = 0; i < seconds; ++i) bench.context.pass(Micros{1'000'000});
    };
    bench.submit(request());
    bench.lose(kFirst);
    pass_seconds(2);
    bench.context.pass(Micros{3'600'000'000});  // at once: no timer was looked at meanwhile
    CHECK(bench.ears[0]->ends == 0);
    pass_seconds(1);
    CHECK(bench.ears[0]->ends == 0);
    pass_seconds(4);
    CHECK(bench.ears[0]->ends == 1);
    CHECK_FALSE(bench.ears[0]->status);
}

// The conductor from an order to the end of its answer: begins, commits, waiting for room, further
// turns.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/grammar/grammar_store.hpp"
#include "tests/unit/actors/conductor_bench.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::conductor_test;  // NOLINT(google-build-using-namespace): likewise

TEST_CASE("a request is posted to segments before drafts, and to those that act first last") {
    Bench bench;
    const RequestId id = bench.submit(request());
    REQUIRE(bench.context.posted.size() == 3);
    CHECK(bench.context.posted[0].to == kVerifier);
    CHECK(bench.context.posted[1].to == kFirst);
    CHECK(bench.context.posted[2].to == kDraft);
    for (const auto& posted : bench.context.posted) {
        CHECK(posted.begin.request == id);
        CHECK(posted.begin.attempt == Attempt{1});
        CHECK(posted.request.text == request().text);
        CHECK(posted.request.replayed == 0);
        CHECK(posted.request.cache_generation == 0);
    }
    CHECK(bench.context.gauges[gauges::kRequests] == 1);
}

TEST_CASE("an order that is taken before the loop runs begins with the loop") {
    ConductorActor conductor{plan(), kVocab, kSlots};
    AnswerOrder order;
    order.request = request();
    int ends = 0;
    order.on_token = [](TokenId) { return Go::On; };
    order.on_end = [&](const AnswerStats&, const Status&) { ++ends; };
    const RequestId id = conductor.submit(std::move(order)).value();
    Recorder context;
    conductor.on_start(context);
    CHECK(context.posted.size() == 3);
    conductor.cancel(id);
    CHECK(ends == 1);
}

TEST_CASE("an answer's statistics have each verdict that the log takes, and no stale or late one") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50, 51, 52});  // four rows in a chain, two of them accepted
    bench.lose(kFirst);
    bench.join(kFirst);
    bench.verdict(id, 1, 7, {52});  // of the attempt before the loss
    bench.verdict(id, 2, 7, {53});
    bench.verdict(id, 2, 8, {54, 55}, FinishReason::EndToken);
    bench.verdict(id, 2, 10, {56});
    const AnswerStats& stats = bench.ears[0]->stats;
    CHECK(stats.generated_tokens == 6);
    const VerdictTally& verdicts = stats.verdicts;
    CHECK(verdicts.batches == 3);
    CHECK(verdicts.candidates + verdicts.batches == 4 + 2 + 3);
    CHECK(verdicts.emitted == 6);
    CHECK(verdicts.accepted == 3);
    CHECK(std::vector(verdicts.accepted_at.begin(), verdicts.accepted_at.begin() + 3) ==
          std::vector<std::int64_t>{2, 1, 0});
    CHECK(copy(bench.conductor.text(id)).back() == 55);
}

TEST_CASE("tokens are handed on in order and the verdict that ends the answer ends it once") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50, 51});
    CHECK(bench.ears[0]->tokens == std::vector<TokenId>{50, 51});
    CHECK(bench.ears[0]->ends == 0);
    bench.verdict(id, 1, 6, {52}, FinishReason::EndToken);
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.ears[0]->status.ok());
    CHECK(bench.ears[0]->stats.finish == FinishReason::EndToken);
    CHECK(bench.ears[0]->stats.generated_tokens == 3);
    CHECK(bench.ears[0]->stats.verdicts.accepted == 1);
    CHECK(bench.ears[0]->stats.verdicts.batches == 2);
    CHECK(bench.context.counted[counters::kTokensCommitted] == 3);
    CHECK(bench.context.traced[TraceKind::Commit] == 2);
    bench.verdict(id, 1, 7, {53});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.ears[0]->tokens.size() == 3);
    CHECK(copy(bench.conductor.text(id)) == std::vector<TokenId>{0, 1, 2, 3, 50, 51, 52});
    CHECK(bench.conductor.open_requests() == 0);
    // All stages get a Stop, also if the final verdict did not reach them.
    REQUIRE(bench.context.stops.size() == 3);
    CHECK(bench.context.stops[0].second.request == id);
    CHECK(bench.context.stops[0].second.attempt == Attempt{1});
}

TEST_CASE("requests wait for room for their texts; small ones pass a large one for a time only") {
    Bench bench;
    const RequestId first = bench.submit(request(40, 96));  // three pages of four
    bench.context.posted.clear();
    bench.submit(request(40, 96));
    bench.submit(request(4, 32));  // a page: it passes
    CHECK(bench.context.posted.size() == 3);
    CHECK(bench.context.gauges[gauges::kQueueDepth] == 1);
    bench.verdict(RequestId{3}, 1, 4, {50}, FinishReason::EndToken);
    bench.context.pass(Micros{3'000'000});
    bench.submit(request(4, 32));  // as small, but the large one has waited long enough
    CHECK(bench.context.gauges[gauges::kQueueDepth] == 2);
    bench.context.posted.clear();
    bench.verdict(first, 1, 40, {50}, FinishReason::EndToken);
    CHECK(bench.context.posted.size() == 6);
    CHECK(bench.context.gauges[gauges::kQueueDepth] == 0);
}

TEST_CASE(
    "a request waits while the running ones have as many grammars as a stage is sent at once") {
    RequestTable table{kVocab, 4096, AcceptanceRule::Coupled, 64};
    std::vector<RequestId> ids;
    for (std::size_t i = 0; i <= kGrammarBytesKept / kCompiledGrammarMax; ++i) {
        AnswerOrder order;
        order.request = request();
        order.request.end_tokens = {7};
        order.request.compiled = std::make_shared<const CompiledGrammar>(
            CompiledGrammar{std::to_string(i), std::string(kCompiledGrammarMax, 'x')});
        ids.push_back(table.accept(std::move(order)).value());
        if (i > 0) table.at(ids[i - 1]).phase = RequestPhase::Running;
    }
    CHECK_FALSE(table.fits(ids.back()));
    table.at(ids.front()).phase = RequestPhase::Ended;
    CHECK(table.fits(ids.back()));
}

TEST_CASE("when pages run short the youngest request gives its own, and begins after an end") {
    Bench bench;
    const auto wants = [&](RequestId request, std::uint32_t attempt, std::uint32_t running) {
        bench.conductor.on_control(kFirst,
                                   control::PagesWanted{request, Attempt{attempt}, running});
    };
    const RequestId oldest = bench.submit(request(4, 96));
    const RequestId middle = bench.submit(request(4, 96));
    bench.verdict(middle, 1, 4, {60, 61});
    bench.context.posted.clear();
    wants(oldest, 2, 2);  // of no attempt that runs
    wants(oldest, 1, 3);  // it has not seen a Stop yet
    CHECK(bench.context.stops.empty());

    wants(oldest, 1, 2);
    REQUIRE(bench.context.stops.size() == 3);
    CHECK(bench.context.stops[0].second.request == middle);
    CHECK(bench.context.stops[0].second.attempt == Attempt{1});
    CHECK(bench.context.valid_from[middle] == Attempt{2});
    CHECK(bench.context.counted[counters::kPreemptions] == 1);
    bench.submit(request(4, 32));  // younger: it does not pass
    CHECK(bench.context.posted.empty());
    wants(oldest, 1, 1);  // alone: what it wants comes with its own verdicts
    CHECK(bench.context.stops.size() == 3);

    bench.verdict(oldest, 1, 4, {50}, FinishReason::EndToken);
    REQUIRE(bench.context.posted.size() == 6);
    CHECK(bench.context.posted[0].begin.request == middle);
    CHECK(bench.context.posted[0].begin.attempt == Attempt{2});
    CHECK(bench.context.posted[0].request.text == std::vector<TokenId>{0, 1, 2, 3, 60, 61});
    bench.verdict(middle, 2, 6, {62}, FinishReason::EndToken);
    CHECK(bench.ears[1]->tokens == std::vector<TokenId>{60, 61, 62});
    CHECK(bench.ears[1]->stats.replays == 0);
    CHECK(bench.ears[1]->stats.preemptions == 1);
}

TEST_CASE("a request that waits for room only is not failed for a pipeline that is back") {
    Bench bench;
    bench.lose(kFirst);
    for (int i = 0; i < 3; ++i) bench.submit(request(60, 96));
    bench.join(kFirst);
    CHECK(bench.context.posted.size() == 3);
    bench.context.pass(Micros{9'000'000});
    CHECK(bench.ears[1]->ends == 0);
    CHECK(bench.ears[2]->ends == 0);
}

TEST_CASE("what was cached before a loss is not used after it") {
    for (const bool loses : {false, true}) {
        Bench bench;
        const RequestId id = bench.submit(request());
        bench.verdict(id, 1, 4, {50, 51}, FinishReason::EndToken);
        if (loses) {
            bench.lose(kFirst);
            bench.join(kFirst);
        }
        const RequestId next = bench.submit(request(9));
        const auto& posted = bench.context.posted.back();
        CHECK(posted.begin.attempt == Attempt{1});
        CHECK(posted.request.replayed == 0);
        CHECK(posted.request.cache_generation == (loses ? 1 : 0));
        bench.verdict(next, 1, 9, {60}, FinishReason::EndToken);
        CHECK(bench.ears[1]->tokens == std::vector<TokenId>{60});
        CHECK(bench.ears[1]->stats.prompt_tokens == 9);
    }
}

TEST_CASE("a request that is closed is forgotten, one that is open is not, and no id comes twice") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.conductor.close(id);  // it is open: nothing happens
    CHECK(bench.conductor.open_requests() == 1);
    bench.conductor.cancel(id);
    bench.conductor.close(id);
    CHECK(bench.conductor.text(id).empty());
    CHECK(bench.submit(request()) > id);
}

TEST_CASE("the conductor refuses requests out of range, and leaves when it is asked to") {
    Bench bench;
    CHECK_FALSE(bench.conductor.submit(bench.order(request(4, kSlots + 1))));
    CHECK_FALSE(bench.conductor.submit(bench.order(request(0))));
    bench.conductor.leave();
    CHECK(bench.context.left);
}

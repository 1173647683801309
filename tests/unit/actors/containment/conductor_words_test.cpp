// The conductor's messages that keep stages from working, or waiting, for an ended attempt: a Stop
// at every end, a Begin again to stages that ask for it.
#include <utility>
#include <vector>

#include "tests/unit/actors/conductor_bench.hpp"

using namespace paceline;                  // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::conductor_test;  // NOLINT(google-build-using-namespace): the same

namespace {

void ask(
    Bench& bench, RequestId id, std::uint32_t attempt, Position position, StageId by = kDraft) {
    bench.context.posted.clear();
    bench.conductor.on_control(by, control::BeginWanted{id, Attempt{attempt}, position});
}

}  // namespace

TEST_CASE("a Stop that finds no room is sent once there is some, in order, to that stage alone") {
    Bench bench;
    const RequestId first = bench.submit(request());
    bench.context.full = {kDraft};
    bench.verdict(first, 1, 4, {50}, FinishReason::EndToken);
    CHECK(bench.context.stops.size() == 2);
    bench.conductor.on_room(kFirst);
    bench.conductor.on_room(kDraft);  // too early
    CHECK(bench.context.stops.size() == 2);
    bench.context.full.clear();
    const RequestId second = bench.submit(request());
    bench.verdict(second, 1, 4, {50}, FinishReason::EndToken);
    CHECK(bench.context.stops.size() == 4);  // what waits for the draft goes first
    bench.conductor.on_room(kDraft);
    REQUIRE(bench.context.stops.size() == 6);
    CHECK(bench.context.stops[4].first == kDraft);
    CHECK(bench.context.stops[4].second.request == first);
    CHECK(bench.context.stops[5].first == kDraft);
    CHECK(bench.context.stops[5].second.request == second);
    bench.conductor.on_room(kDraft);
    CHECK(bench.context.stops.size() == 6);
}

TEST_CASE("what waits for a stage that is lost is not for its next incarnation") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.context.full = {kDraft};
    bench.conductor.cancel(id);
    bench.lose(kDraft);
    bench.context.full.clear();
    bench.join(kDraft);
    bench.conductor.on_room(kDraft);
    CHECK(bench.context.stops.size() == 2);
}

TEST_CASE(
    "of one request the last Stop alone waits; a stage that leaves thousands unread is reported") {
    Bench bench;
    bench.context.full = {kDraft};
    RequestId last = bench.submit(request());
    for (std::uint32_t attempt = 1; attempt <= 20; ++attempt) {
        bench.verdict(last, attempt, static_cast<Position>(3 + attempt), {50});
        bench.lose(kFirst);
        bench.join(kFirst);
    }
    bench.conductor.cancel(last);
    const auto one_more = [&] {
        bench.conductor.close(last);
        last = bench.submit(request());
        bench.conductor.cancel(last);
    };
    for (std::size_t i = 1; i < StopOutbox::kWaitingMax; ++i) one_more();
    CHECK(bench.context.faults.empty());
    one_more();
    REQUIRE(bench.context.faults.size() == 1);
    CHECK(bench.context.faults[0].first == kDraft);
}

TEST_CASE(
    "a draft that missed a verdict is told once the log has what it misses, once for each gap") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50, 51});
    ask(bench, id, 1, 7);  // it has learned of a verdict that has not come here yet
    CHECK(bench.context.posted.empty());
    bench.verdict(id, 1, 6, {52});
    REQUIRE(bench.context.posted.size() == 1);
    CHECK(bench.context.posted[0].to == kDraft);
    CHECK(bench.context.posted[0].begin.attempt == Attempt{1});
    CHECK(bench.context.posted[0].request.text == std::vector<TokenId>{0, 1, 2, 3, 50, 51, 52});
    CHECK(bench.context.posted[0].request.replayed == 3);
    for (const Position known : {5, 6, 7}) {
        ask(bench, id, 1, known);
        CHECK(bench.context.posted.empty());
    }
    bench.verdict(id, 1, 7, {53});
    CHECK(bench.context.posted.empty());
    ask(bench, id, 1, 8);
    CHECK(bench.context.posted.size() == 1);
    // A next incarnation may ask for what the one before was told.
    bench.lose(kDraft);
    bench.join(kDraft);
    ask(bench, id, 1, 8);
    CHECK(bench.context.posted.size() == 1);
    CHECK(bench.context.faults.empty());
}

TEST_CASE("who asks for another attempt, an ended request, or while it is lost receives nothing") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50});
    ask(bench, id, 2, 5);
    ask(bench, RequestId{99}, 1, 5);
    ask(bench, id, 1, 5, StageId{77});
    bench.lose(kDraft);
    ask(bench, id, 1, 5);
    bench.join(kDraft);
    ask(bench, id, 1, 6);
    bench.lose(kFirst);  // the attempt is void, and with it what was asked
    bench.join(kFirst);
    bench.context.posted.clear();
    bench.verdict(id, 2, 5, {51});
    CHECK(bench.context.posted.empty());
    bench.conductor.cancel(id);
    ask(bench, id, 2, 6);
    CHECK(bench.context.posted.empty());
    CHECK(bench.context.faults.empty());
}

TEST_CASE(
    "a segment that asks for a Begin, and a draft that asks beyond the context, are reported") {
    Bench bench;
    const RequestId id = bench.submit(request(4, 64));
    ask(bench, id, 1, 5, kFirst);
    ask(bench, id, 1, 65);
    ask(bench, id, 1, 0);
    REQUIRE(bench.context.faults.size() == 3);
    CHECK(bench.context.faults[0].first == kFirst);
    CHECK(bench.context.faults[1].first == kDraft);
    CHECK(bench.context.posted.empty());
}

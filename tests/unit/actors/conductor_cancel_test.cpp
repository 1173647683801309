// The conductor when an answer is not wanted any more: clients that stop or go, draining,
// callbacks.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/conductor_bench.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::conductor_test;  // NOLINT(google-build-using-namespace): likewise

TEST_CASE("a callback that says stop stops all stages and keeps what it saw, not more") {
    Bench bench;
    AnswerOrder order = bench.order(request());
    order.on_token = [](TokenId token) { return token == 51 ? Go::Stop : Go::On; };
    const RequestId id = bench.conductor.submit(std::move(order)).value();
    bench.verdict(id, 1, 4, {50, 51, 52});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.ears[0]->status.ok());
    CHECK(bench.context.stops.size() == 3);
    CHECK(bench.context.stops[0].second.attempt == Attempt{1});
    CHECK(bench.context.valid_from[id] == Attempt{2});
    CHECK(copy(bench.conductor.text(id)) == std::vector<TokenId>{0, 1, 2, 3, 50, 51});
}

TEST_CASE("an answer that its own callback cancels keeps what was handed on") {
    Bench bench;
    RequestId id;
    AnswerOrder order = bench.order(request());
    order.on_token = [&bench, &id](TokenId token) {
        if (token == 50) bench.conductor.cancel(id);
        return Go::On;
    };
    id = bench.conductor.submit(std::move(order)).value();
    bench.verdict(id, 1, 4, {50, 51, 52});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(copy(bench.conductor.text(id)) == std::vector<TokenId>{0, 1, 2, 3, 50});
}

TEST_CASE("an answer whose client is gone is stopped, running or waiting") {
    Bench bench;
    bool gone = false;
    for (int i = 0; i < 2; ++i) {
        AnswerOrder order = bench.order(request());
        order.cancelled = [&gone] { return gone; };
        REQUIRE(bench.conductor.submit(std::move(order)));
        if (i == 0) bench.context.pass(Micros{100'000});
        if (i == 0) bench.lose(kFirst);
    }
    bench.join(kFirst);
    CHECK(bench.ears[0]->ends == 0);
    bench.lose(kVerifier);
    bench.join(kVerifier);
    bench.context.stops.clear();
    gone = true;
    bench.context.pass(Micros{20'000});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.ears[1]->ends == 1);
    CHECK(bench.ears[0]->status.ok());
    CHECK(bench.context.stops.size() == 6);
    bench.context.pass(Micros{9'000'000});
    CHECK(bench.context.timers.empty());
    CHECK(bench.ears[0]->ends == 1);
}

TEST_CASE("a client that is gone is noticed with the next batch, and receives nothing of it") {
    Bench bench;
    bool gone = false;
    AnswerOrder order = bench.order(request());
    order.cancelled = [&gone] { return gone; };
    const RequestId id = bench.conductor.submit(std::move(order)).value();
    bench.verdict(id, 1, 4, {50, 51});
    gone = true;
    bench.verdict(id, 1, 6, {52, 53});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.ears[0]->tokens == std::vector<TokenId>{50, 51});
    CHECK(bench.context.stops.size() == 3);
    CHECK(copy(bench.conductor.text(id)) == std::vector<TokenId>{0, 1, 2, 3, 50, 51});
}

TEST_CASE("a request that was never begun is cancelled without a Stop") {
    Bench bench;
    bench.lose(kFirst);
    const RequestId id = bench.submit(request());
    bench.conductor.cancel(id);
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.context.stops.empty());
    bench.conductor.cancel(id);
    CHECK(bench.ears[0]->ends == 1);
    bench.join(kFirst);
    CHECK(bench.context.posted.empty());
}

TEST_CASE("what drains takes nothing new, and stops what is not done in time with an error") {
    Bench bench;
    const RequestId first = bench.submit(request(4, 32));
    bench.submit(request(4, 32));
    bench.lose(kDraft);
    bench.conductor.drain(Micros{1'000'000});
    CHECK_FALSE(bench.conductor.submit(bench.order(request())));
    bench.verdict(first, 1, 4, {50}, FinishReason::EndToken);
    CHECK(bench.ears[0]->status.ok());
    CHECK(bench.ears[1]->ends == 0);
    bench.context.pass(Micros{1'000'000});
    CHECK(bench.ears[1]->ends == 1);
    CHECK(bench.ears[1]->status.error().code == Errc::Cancelled);
    CHECK(bench.context.stops.size() == 6);
    CHECK(bench.conductor.open_requests() == 0);
}

TEST_CASE("callbacks may order, cancel and close") {
    Bench bench;
    AnswerOrder order = bench.order(request());
    RequestId id;
    order.on_token = [&](TokenId) {
        bench.conductor.cancel(id);
        return Go::On;
    };
    order.on_end = [&, ear = bench.ears[0].get()](const AnswerStats&, const Status&) {
        ++ear->ends;
        bench.conductor.close(id);
        bench.submit(request(7));
    };
    id = bench.conductor.submit(std::move(order)).value();
    bench.verdict(id, 1, 4, {50, 51});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.context.posted.size() == 6);
    CHECK(bench.context.posted.back().request.text.size() == 7);
    CHECK(bench.conductor.open_requests() == 1);
}

// The conductor's record of log probabilities: what reaches the client, and what is a fault.
#include "actors/conductor/score_log.hpp"

#include <string>

#include <doctest/doctest.h>

#include "tests/unit/actors/conductor_bench.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

msg::Scores scores(Position first, std::uint32_t tokens, RequestId request = RequestId{1}) {
    msg::Scores made{};
    made.route = {request, Attempt{1}, Epoch{1}};
    made.first = first;
    made.tokens = tokens;
    made.top = 1;
    for (std::uint32_t i = 0; i < tokens; ++i) {
        const auto value = static_cast<std::int32_t>(first) + static_cast<std::int32_t>(i);
        made.entries[2 * i] = {value, -1.0F};
        made.entries[2 * i + 1] = {value + 1, -0.5F};
    }
    return made;
}

struct Client {
    std::vector<Position> positions;
    PlainDecoder::OnScores on_scores = [this](Position position, const TokenScores& of) {
        positions.push_back(position);
        CHECK(of.rank == position);
        CHECK(of.top == std::vector<ScoredToken>{{position + 1, -0.5F}});
    };
};

void refused(const Status& status, const std::string& what) {
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Errc::Protocol);
    CHECK_MESSAGE(status.error().what.find(what) != std::string::npos, status.error().what);
}

}  // namespace

TEST_CASE("each score of a prompt reaches the client once and in order, also after a replay") {
    ScoreLog log{{.prompt = true, .top = 1}, 10};
    Client client;
    CHECK(log.take(scores(1, 4), 10, client.on_scores));
    refused(log.take(scores(6, 1), 10, client.on_scores), "expected from 5 on");
    refused(log.check(1), "the prompt's token 5");
    CHECK(log.wanted().prompt);
    log.next_attempt();
    CHECK(log.take(scores(1, 9), 10, client.on_scores));
    CHECK(client.positions == std::vector<Position>{1, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK(log.check(1));
    CHECK_FALSE(log.wanted().prompt);  // a replay takes it from the cache
    refused(log.take(scores(9, 2), 10, client.on_scores), "not in order");
}

TEST_CASE("scores of an answer wait for the verdict on as many tokens") {
    ScoreLog log{{.answer = true, .top = 1}, 4};
    CHECK(log.take(scores(4, 2), 4, {}));
    CHECK(log.take(scores(6, 1), 4, {}));
    refused(log.check(2), "2 tokens after scores of 3");
    CHECK(log.check(3));
    CHECK(log.take_answer().size() == 3);
    refused(log.check(1), "1 tokens after scores of 0");
    refused(log.take(scores(4, 1), 7, {}), "expected from 7 on");
    refused(log.take(scores(2, 1), 7, {}), "not asked for");
    CHECK(log.take(scores(7, 1), 7, {}));
    log.next_attempt();
    CHECK(log.take(scores(7, 2), 7, {}));
    CHECK(log.check(2));
    for (int i = 0; i < 15; ++i) (void)log.take(scores(9 + 2 * i, 2), 7, {});
    refused(log.take(scores(39, 2), 7, {}), "not in order");  // more than a verdict has
}

TEST_CASE(
    "the conductor gives scores to the client with their tokens, and drops those of an old "
    "attempt") {
    conductor_test::Bench bench;
    Request wanted = conductor_test::request(4);
    wanted.scores = {.answer = true, .top = 1};
    AnswerOrder order = bench.order(wanted);
    std::vector<Position> positions;
    order.on_scores = [&](Position position, const TokenScores&) {
        CHECK(bench.ears[0]->tokens.size() == positions.size());
        positions.push_back(position);
    };
    const RequestId id = bench.conductor.submit(std::move(order)).value();
    const auto deliver = [&](const msg::Scores& of) {
        bench.conductor.handle(conductor_test::kVerifier,
                               static_cast<std::uint16_t>(msg::Kind::Scores),
                               std::as_bytes(std::span{&of, 1}));
    };
    CHECK(bench.context.posted.back().request.scores.answer);
    deliver(scores(4, 1, id));
    bench.lose(conductor_test::kVerifier);
    bench.join(conductor_test::kVerifier);
    deliver(scores(4, 1, id));  // of attempt 1
    msg::Scores next = scores(4, 2, id);
    next.route.attempt = Attempt{2};
    deliver(next);
    CHECK(positions.empty());
    bench.verdict(id, 2, 4, {50, 51});
    CHECK(positions == std::vector<Position>{4, 5});
    CHECK(bench.context.faults.empty());
    bench.verdict(id, 2, 6, {52});  // without its scores
    REQUIRE(bench.context.faults.size() == 1);
    CHECK(bench.context.faults[0].first == conductor_test::kVerifier);
    CHECK(bench.ears[0]->tokens.size() == 2);
}

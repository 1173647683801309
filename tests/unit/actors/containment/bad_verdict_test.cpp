// An invalid verdict: its sender is replaced, and the run continues.
#include <functional>
#include <string>

#include "tests/support/pipeline/cluster.hpp"
#include "tests/unit/actors/conductor_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

struct Lie {
    const char* complaint;
    std::function<void(msg::Verdict&)> tell;
};

/// Each is one field of a verdict that would be right.
const Lie kLies[] = {
    {"tokens[0] = -1", [](msg::Verdict& verdict) { verdict.tokens[0] = -1; }},
    {"tokens[0] = 100", [](msg::Verdict& verdict) { verdict.tokens[0] = 100; }},
    {"count = 34", [](msg::Verdict& verdict) { verdict.count = 34; }},
    {"count = 0", [](msg::Verdict& verdict) { verdict.count = 0; }},
    {"finish = 77", [](msg::Verdict& verdict) { verdict.finish = static_cast<FinishReason>(77); }},
    {"depth = 9", [](msg::Verdict& verdict) { verdict.depth = 9; }},
    {"base = -3", [](msg::Verdict& verdict) { verdict.base = -3; }},
    {"position 7", [](msg::Verdict& verdict) { verdict.base = 7; }},
    {"context of 6", [](msg::Verdict& verdict) { verdict.count = 3; }},
    {"epoch 9", [](msg::Verdict& verdict) { verdict.route.epoch = Epoch{9}; }},
};

}  // namespace

TEST_CASE(
    "a verdict that fails a check is reported as its sender's fault, and nothing else follows") {
    for (const Lie& lie : kLies) {
        CAPTURE(std::string{lie.complaint});
        conductor_test::Bench bench;
        const RequestId id = bench.submit(conductor_test::request(4, 6));
        msg::Verdict verdict{};
        verdict.route = {id, Attempt{1}, Epoch{1}};
        verdict.base = 4;
        verdict.count = 1;
        verdict.batch_rows = 5;
        verdict.tokens = {50, 51, 52};
        lie.tell(verdict);
        bench.conductor.handle(conductor_test::kVerifier,
                               static_cast<std::uint16_t>(msg::Kind::Verdict),
                               std::as_bytes(std::span{&verdict, 1}));
        CHECK_FALSE(bench.context.failure);
        REQUIRE(bench.context.faults.size() == 1);
        CHECK(bench.context.faults[0].first == conductor_test::kVerifier);
        CHECK_MESSAGE(bench.context.faults[0].second.what.find(lie.complaint) != std::string::npos,
                      bench.context.faults[0].second.what);
        CHECK(bench.ears[0]->tokens.empty());
        // What the loop does with a fault: the attempt is void, and begins again.
        bench.lose(conductor_test::kVerifier);
        CHECK(bench.context.valid_from[id] == Attempt{2});
        bench.join(conductor_test::kVerifier);
        bench.verdict(id, 2, 4, {50}, FinishReason::MaxTokens);
        CHECK(bench.ears[0]->tokens == std::vector<TokenId>{50});
        CHECK(bench.ears[0]->status.ok());
    }
}

TEST_CASE("a message that only another stage may send is reported as its sender's fault") {
    conductor_test::Bench bench;
    bench.submit(conductor_test::request());
    const msg::Verdict verdict{};
    bench.conductor.handle(conductor_test::kDraft, static_cast<std::uint16_t>(msg::Kind::Verdict),
                           std::as_bytes(std::span{&verdict, 1}));
    const msg::Stop stop{};
    bench.conductor.handle(conductor_test::kFirst, static_cast<std::uint16_t>(msg::Kind::Stop),
                           std::as_bytes(std::span{&stop, 1}));
    CHECK_FALSE(bench.context.failure);
    REQUIRE(bench.context.faults.size() == 2);
    CHECK(bench.context.faults[0].first == conductor_test::kDraft);
    CHECK(bench.context.faults[1].first == conductor_test::kFirst);
}

TEST_CASE(
    "a last segment that lies to the conductor is replaced, and the answer is plain decoding's") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
        if (seed % 2 == 0) make_sampled(request, seed);
        const int segments = 1 + static_cast<int>(seed % 3);
        Cluster cluster{{.segments = segments, .drafting = Drafting::Lookup, .seed = seed}};
        REQUIRE(cluster.submit(request));
        cluster.world.run([&] { return cluster.answers[0]->tokens.size() >= seed % 7; });
        if (cluster.answers[0]->ends > 0) continue;
        msg::Verdict lie{};
        lie.route = {RequestId{1}, Attempt{1}, Epoch{1}};
        lie.base = seed % 3 == 0 ? 500 : static_cast<Position>(request.text.size());
        lie.count = 1;
        lie.batch_rows = 1;
        lie.tokens[0] = seed % 3 == 0 ? 1 : kFakeVocab;
        cluster.world.inject(segment_id(segments), kTheConductor, lie);
        cluster.run_until_last_ended();
        CHECK(cluster.answers[0]->status.ok());
        CHECK(cluster.answers[0]->tokens == plain_answer(request).answer);
        CHECK(cluster.answers[0]->ends == 1);
        CHECK(cluster.world.faults.size() == 1);
        CHECK(cluster.answers[0]->stats.replays == 1);
    }
}

// Messages whose epoch is not that of their channel: they are dropped, and their sender is
// replaced.
#include "actors/protocol/counters.hpp"
#include "tests/support/pipeline/cluster.hpp"
#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr Epoch kWild{0xfffffff0U};

}  // namespace

TEST_CASE(
    "a draft does not follow a message of a wild epoch, reports it, and follows the next one") {
    DraftBench bench{plan_of({.pace = DraftPace::Sequential, .gamma = 2}), with_lookup()};
    Request request = request_of(5);
    request.text = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
    bench.begin(request);
    (void)bench.proposals();
    msg::Verdict wild{};
    wild.route = {kRequest, Attempt{1}, kWild};
    wild.base = static_cast<Position>(request.text.size());
    wild.count = 1;
    wild.batch_rows = 1;
    bench.deliver(kVerifier, wild);
    CHECK(bench.proposals().empty());
    REQUIRE(bench.context.faults.size() == 1);
    CHECK(bench.context.faults[0].first == kVerifier);
    CHECK(bench.context.faults[0].second.what.find("epoch 4294967280") != std::string::npos);
    CHECK(bench.context.counted[counters::kFenced] == 1);
    bench.verdict({3, 4});
    CHECK_FALSE(bench.proposals().empty());
}

TEST_CASE(
    "a segment that claims a wild epoch once is replaced, and its next incarnation is followed") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        const Request request = small_request(seed);
        Cluster cluster{{.segments = 3, .drafting = Drafting::Lookup, .seed = seed}};
        REQUIRE(cluster.submit(request));
        cluster.world.run([&] { return cluster.answers[0]->tokens.size() >= 3; });
        msg::Verdict wild{};
        wild.route = {RequestId{999}, Attempt{1}, kWild};
        wild.count = 1;
        wild.batch_rows = 1;
        const StageId receiver = seed % 2 == 0 ? kFirstSegment : kTheDraft;
        cluster.world.inject(segment_id(3), receiver, wild);
        cluster.run_until_last_ended();
        CHECK(cluster.answers[0]->tokens == plain_answer(request).answer);
        cluster.run_dry();
        cluster.replace_faulty();
        REQUIRE(cluster.world.faults.size() == 1);
        CHECK(cluster.world.faults[0].by == receiver);
        CHECK(cluster.world.faults[0].peer == segment_id(3));
        const std::uint64_t used = cluster.scheduler().proposals().used;
        REQUIRE(cluster.submit(request));
        cluster.run_until_last_ended();
        CHECK(cluster.answers[1]->tokens == plain_answer(request).answer);
        CHECK(cluster.scheduler().proposals().used >= used);
    }
}

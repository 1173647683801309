// Invalid messages: the sender is reported and replaced, the reader continues.
#include <functional>
#include <string>

#include "tests/support/pipeline/cluster.hpp"
#include "tests/unit/actors/draft_bench.hpp"
#include "tests/unit/actors/protocol_scene.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr msg::Route kRouteOfFirst{RequestId{1}, Attempt{1}, Epoch{1}};

msg::Verdict verdict_at(Position base, TokenId token) {
    msg::Verdict verdict{};
    verdict.route = kRouteOfFirst;
    verdict.base = base;
    verdict.count = 1;
    verdict.batch_rows = 1;
    verdict.tokens[0] = token;
    return verdict;
}

msg::Batch batch_of(TokenId token) {
    msg::BatchPart part{};
    part.request = RequestId{1};
    part.attempt = Attempt{1};
    part.rows = 1;
    msg::BatchRow row{};
    row.token = token;
    msg::Batch batch{};
    batch.epoch = Epoch{1};
    batch.tensor_rows = 1;
    batch.parts = {part};
    batch.rows = {row};
    return batch;
}

msg::Proposal proposal_of(TokenId token) {
    msg::Proposal proposal{};
    proposal.route = kRouteOfFirst;
    proposal.count = 1;
    proposal.nodes[0] = {
        .token = token, .parent = msg::kBelowRoot, .origin = msg::Origin::Trunk, .log_prob = -0.1F};
    return proposal;
}

struct Lie {
    const char* complaint;
    StageId from;
    StageId to;
    std::function<void(ShuffledWorld&, StageId from, StageId to)> tell;
};

template <class M>
Lie lie(const char* complaint, StageId from, StageId to, const M& message) {
    return {complaint, from, to, [message](ShuffledWorld& world, StageId by, StageId at) {
                world.inject(by, at, message);
            }};
}

std::vector<Lie> lies() {
    const StageId middle = segment_id(2);
    const StageId last = segment_id(3);
    return {
        lie("tokens[0] = 48", last, kFirstSegment, verdict_at(3, 48)),
        lie("tokens[0] = -1", last, middle, verdict_at(3, -1)),
        lie("commits from position 200", last, kFirstSegment, verdict_at(200, 1)),
        lie("commits from position 200", last, middle, verdict_at(200, 1)),
        lie("tokens[0] = 48", last, kTheDraft, verdict_at(3, 48)),
        lie("not the last segment", middle, kFirstSegment, verdict_at(3, 1)),
        lie("not the last segment", kFirstSegment, kTheDraft, verdict_at(3, 1)),
        lie("row 0 has token = 48", kFirstSegment, middle, batch_of(48)),
        lie("not the segment before", last, middle, batch_of(1)),
        lie("node 0 has token = 48", kTheDraft, kFirstSegment, proposal_of(48)),
        lie("neither its exit nor its correct", middle, kTheDraft, proposal_of(1)),
        lie("kind 5, which this stage", kTheDraft, kFirstSegment, msg::TensorNote{}),
        lie("only the conductor", middle, kFirstSegment, msg::Stop{kRouteOfFirst}),
        lie("only the conductor", last, kTheDraft, msg::Stop{kRouteOfFirst}),
    };
}

}  // namespace

TEST_CASE(
    "who sends what it must not is reported and replaced, and the answer is plain decoding's") {
    static_assert(kFakeVocab == 48);
    for (const Lie& told : lies()) {
        CAPTURE(std::string{told.complaint});
        CAPTURE(told.to.value);
        int reports = 0;
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            CAPTURE(seed);
            Request request = small_request(seed);
            request.max_tokens = 30;
            if (seed % 2 == 0) make_sampled(request, seed);
            const std::vector<TokenId> plain = plain_answer(request).answer;
            Cluster cluster{{.segments = 3, .drafting = Drafting::Lookup, .seed = seed}};
            REQUIRE(cluster.submit(request));
            cluster.world.run([&] { return cluster.answers[0]->tokens.size() >= seed % 4; });
            if (cluster.answers[0]->ends > 0) continue;
            told.tell(cluster.world, told.from, told.to);
            cluster.run_until_last_ended();
            CHECK(cluster.answers[0]->status.ok());
            CHECK(cluster.answers[0]->tokens == plain);
            cluster.run_dry();
            if (cluster.world.faults.empty()) continue;  // the answer was over when it was read
            ++reports;
            CHECK(cluster.world.faults[0].by == told.to);
            CHECK(cluster.world.faults[0].peer == told.from);
            const std::string& what = cluster.world.faults[0].error.what;
            CHECK_MESSAGE(what.find(told.complaint) != std::string::npos, what);
            CHECK(cluster.world.faults.size() == 1);
        }
        CHECK(reports > 0);
    }
}

namespace {

constexpr StageId kFrontId{21};
constexpr StageId kBackId{22};

struct BatchPool : ScriptedPool {
    BatchPool() : ScriptedPool{4, kBatchRowsMax * kFakeDim * sizeof(float)} {}
};

SegmentPlan plan_of_two(bool last) {
    SegmentPlan plan;
    plan.count = 2;
    (last ? plan.previous : plan.next) = last ? kFrontId : kBackId;
    plan.verifier = kBackId;
    plan.first_segment = kFrontId;
    if (last) plan.verdict_to = {kConductor, kFrontId};
    return plan;
}

/// Two segments; what the first one sends is changed on its way.
struct Pair {
    Pair() {
        first.context.out = &pool.producer;
        last.context.in = &pool.consumer;
        first.begin(scene_request());
        last.begin(scene_request());
        first.run_job("prefill");
        prefill = first.expect<msg::Batch>(kBackId);
        first.run_job("verify");
        verify = first.expect<msg::Batch>(kBackId);
    }
    BatchPool pool;
    FakeBackend front{0, kFakeLayers / 2, 256};
    FakeBackend back{kFakeLayers / 2, kFakeLayers, 256};
    ProtocolScene<SegmentActor> first{kFrontId, plan_of_two(false), front};
    ProtocolScene<SegmentActor> last{kBackId, plan_of_two(true), back};
    msg::Batch prefill;
    msg::Batch verify;
};

}  // namespace

TEST_CASE("a batch whose rows cannot join the text names the segment before, and is not run") {
    struct Change {
        const char* complaint;
        std::function<void(msg::Batch& prefill, msg::Batch& verify)> make;
    };
    const Change changes[] = {
        {"position 1 of 3 is next",
         [](msg::Batch& prefill, msg::Batch&) { prefill.rows[1].position = 2; }},
        {"brings token", [](msg::Batch& prefill, msg::Batch&) { prefill.rows[0].token ^= 1; }},
        {"tensor", [](msg::Batch& prefill, msg::Batch&) { ++prefill.tensor_generation; }},
        {"is not the root", [](msg::Batch&, msg::Batch& verify) { verify.rows[0].token ^= 1; }},
        {"has no name",
         [](msg::Batch&, msg::Batch& verify) { verify.rows[0].node = TokenTree::kNoNode; }},
    };
    for (const Change& change : changes) {
        CAPTURE(std::string{change.complaint});
        Pair pair;
        change.make(pair.prefill, pair.verify);
        pair.last.tell(kFrontId, pair.prefill);
        if (pair.last.context.faults.empty()) {
            pair.last.run_job("prefill");
            pair.last.tell(kFrontId, pair.verify);
        }
        REQUIRE(pair.last.context.faults.size() == 1);
        CHECK(pair.last.context.faults[0].first == kFrontId);
        const std::string& what = pair.last.context.faults[0].second.what;
        CHECK_MESSAGE(what.find(change.complaint) != std::string::npos, what);
        pair.last.expect_nothing_more();
    }
}

TEST_CASE("a Begin that cannot be ends the stage itself, whatever a peer's message let it begin") {
    Request wrong = scene_request();
    wrong.text = {kFakeVocab};
    const control::Begin begin{
        .request = RequestId{9}, .attempt = Attempt{1}, .payload = encode_begin({wrong})};
    Pair pair;
    pair.first.actor.on_control(kConductor, begin);
    REQUIRE(pair.first.context.failure);
    CHECK(pair.first.context.faults.empty());
    DraftBench bench{plan_of({.gamma = 2}), with_lookup()};
    bench.actor.on_control(kConductor, begin);
    REQUIRE(bench.context.failure);
    CHECK(bench.context.faults.empty());
}

TEST_CASE("a last segment that answers requests which never began is reported, its reader lives") {
    Pair pair;
    msg::Verdict early = verdict_at(3, 1);
    for (std::uint64_t id = 100; id < 100 + AttemptFilter::kHeldMax; ++id) {
        early.route.request = RequestId{id};
        pair.first.tell(kBackId, early);
    }
    CHECK(pair.first.context.faults.empty());
    early.route.request = RequestId{99};
    pair.first.tell(kBackId, early);
    REQUIRE(pair.first.context.faults.size() == 1);
    CHECK(pair.first.context.faults[0].first == kBackId);
}

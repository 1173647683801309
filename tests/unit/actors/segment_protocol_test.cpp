// The protocols of a segment's roles: Dispatcher, EarlyVerify and FinalVerify, each as the exchange
// of messages that its header declares.
#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "actors/protocol/counters.hpp"
#include "actors/segment/segment_actor.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "tests/unit/actors/protocol_scene.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr StageId kFirst{1};
constexpr StageId kMiddle{2};
constexpr StageId kLast{3};
constexpr StageId kDraft{4};
constexpr StageId kCorrect{5};

/// A segment with its layers.
struct Segment {
    Segment(StageId self, SegmentPlan plan, int first_layer, int last_layer)
        : backend{first_layer, last_layer, 256}, scene{self, std::move(plan), backend} {}
    FakeBackend backend;
    ProtocolScene<SegmentActor> scene;
};

struct BatchPool : ScriptedPool {
    BatchPool() : ScriptedPool{4, kBatchRowsMax * kFakeDim * sizeof(float)} {}
};

SegmentPlan plan_between(std::optional<StageId> previous, std::optional<StageId> next) {
    SegmentPlan plan;
    plan.count = 2;
    plan.previous = previous;
    plan.next = next;
    plan.draft = kDraft;
    plan.speculative = {kDraft, kCorrect};
    plan.verifier = kLast;
    plan.first_segment = kFirst;
    return plan;
}

std::vector<TokenId> grown(std::vector<TokenId> text, const std::vector<TokenId>& tokens) {
    text.insert(text.end(), tokens.begin(), tokens.end());
    return text;
}

}  // namespace

TEST_CASE("Dispatcher: a prompt is prefilled, and each proposal becomes a batch") {
    const Request request = scene_request();
    const std::vector<TokenId> answer = plain_answer(request).answer;
    const TokenId wrong = (answer[1] + 1) % kFakeVocab;
    BatchPool pool;
    Segment segment{kFirst, plan_between({}, kLast), 0, kFakeLayers / 2};
    ProtocolScene<SegmentActor>& first = segment.scene;
    first.context.out = &pool.producer;

    first.begin(request);
    first.run_job("prefill");
    const auto prefill = first.expect<msg::Batch>(kLast);
    CHECK(prefill.parts[0].kind == msg::BatchKind::Prefill);
    CHECK(prefill.rows.size() == 2);
    first.expect_nothing_more();  // it waits for the draft

    first.tell(kDraft, scene_proposal(request.text, {answer[0], wrong}));
    first.run_job("verify");
    const auto batch = first.expect<msg::Batch>(kLast);
    REQUIRE(batch.rows.size() == 3);
    CHECK(batch.parts[0].base == 2);
    CHECK(batch.rows[0].token == request.text.back());
    CHECK(batch.rows[1].token == answer[0]);
    CHECK(batch.rows[2].token == wrong);

    first.tell(kLast, scene_verdict(request.text, {answer[0], answer[1]}, {batch.rows[1].node}));
    first.expect_nothing_more();
    // A proposal of an attempt that is over changes nothing; one without candidates ends the wait.
    msg::Proposal stale = scene_proposal(grown(request.text, {answer[0], answer[1]}), {wrong});
    stale.route.attempt = Attempt{0};
    first.tell(kDraft, stale);
    first.expect_nothing_more();
    first.tell(kDraft, scene_proposal(grown(request.text, {answer[0], answer[1]}), {}));
    first.run_job("verify");
    const auto alone = first.expect<msg::Batch>(kLast);
    CHECK(alone.rows.size() == 1);
    CHECK(alone.rows[0].token == answer[1]);

    first.tell(kConductor, msg::Stop{kSceneRoute});
    first.tell(kDraft, scene_proposal(grown(request.text, {answer[0], answer[1]}), {answer[2]}));
    first.expect_nothing_more();
}

TEST_CASE("FinalVerify: a batch is answered by the target's own tokens, to every receiver") {
    const Request request = scene_request();
    const std::vector<TokenId> answer = plain_answer(request).answer;
    const TokenId wrong = (answer[1] + 1) % kFakeVocab;
    BatchPool pool;
    Segment front{kFirst, plan_between({}, kLast), 0, kFakeLayers / 2};
    SegmentPlan plan = plan_between(kFirst, {});
    plan.verdict_to = {kConductor, kFirst, kDraft};
    Segment back{kLast, plan, kFakeLayers / 2, kFakeLayers};
    ProtocolScene<SegmentActor>& first = front.scene;
    ProtocolScene<SegmentActor>& last = back.scene;
    first.context.out = &pool.producer;
    last.context.in = &pool.consumer;

    first.begin(request);
    last.begin(request);
    first.run_job("prefill");
    last.tell(kFirst, first.expect<msg::Batch>(kLast));
    last.run_job("prefill");
    last.expect_nothing_more();  // no verdict about a prompt

    first.tell(kDraft, scene_proposal(request.text, {answer[0], wrong}));
    first.run_job("verify");
    last.tell(kFirst, first.expect<msg::Batch>(kLast));
    last.run_job("verify");
    const auto verdict = last.expect<msg::Verdict>(kConductor);
    CHECK(verdict.base == 3);
    REQUIRE(verdict.count == 2);
    CHECK(verdict.tokens[0] == answer[0]);
    CHECK(verdict.tokens[1] == answer[1]);
    CHECK(verdict.finish == FinishReason::None);
    CHECK(last.expect<msg::Verdict>(kDraft).count == 2);
    first.tell(kLast, last.expect<msg::Verdict>(kFirst));

    // A batch that the last segment gets after a Stop has no verdict.
    first.tell(kDraft, scene_proposal(grown(request.text, {answer[0], answer[1]}), {answer[2]}));
    first.run_job("verify");
    last.tell(kConductor, msg::Stop{kSceneRoute});
    last.tell(kFirst, first.expect<msg::Batch>(kLast));
    first.expect_nothing_more();
    last.expect_nothing_more();
}

TEST_CASE(
    "a segment that reads the Stops of many requests before their Begins takes none of them up") {
    const Request request = scene_request();
    BatchPool pool;
    Segment segment{kFirst, plan_between({}, kLast), 0, kFakeLayers / 2};
    ProtocolScene<SegmentActor>& first = segment.scene;
    first.context.out = &pool.producer;
    first.begin(request);
    first.run_job("prefill");
    (void)first.expect<msg::Batch>(kLast);
    for (std::uint64_t id = 100; id < 400; ++id) {
        first.tell(kConductor, msg::Stop{{RequestId{id}, Attempt{1}, kSceneRoute.epoch}});
    }
    for (std::uint64_t id = 100; id < 400; ++id) {
        first.actor.on_control(kConductor, control::Begin{.request = RequestId{id},
                                                          .attempt = Attempt{1},
                                                          .payload = encode_begin({request})});
    }
    CHECK_FALSE(first.context.failure);
    CHECK(first.context.jobs_waiting() == 0);
    first.expect_nothing_more();
}

TEST_CASE("a Stop that comes behind the waiting Begin of the next attempt leaves it waiting") {
    const Request request = scene_request();
    BatchPool pool;
    Segment segment{kLast, plan_between(kFirst, {}), kFakeLayers / 2, kFakeLayers};
    ProtocolScene<SegmentActor>& first = segment.scene;
    first.begin(request);
    for (std::uint64_t i = 1; i < kStatesMax; ++i) {  // all that it may know
        first.actor.on_control(kConductor, control::Begin{.request = RequestId{1000 + i},
                                                          .attempt = Attempt{1},
                                                          .payload = encode_begin({request})});
    }
    const auto running = [&] { return first.context.gauges[gauges::kRequests]; };
    CHECK(running() == kStatesMax);

    const RequestId other{kSceneRequest.value + 1};
    first.actor.on_control(kConductor, control::Begin{.request = other,
                                                      .attempt = Attempt{2},
                                                      .payload = encode_begin({request})});
    first.tell(kConductor, msg::Stop{{other, Attempt{1}, kSceneRoute.epoch}});
    CHECK(running() == kStatesMax);
    first.tell(kConductor, msg::Stop{kSceneRoute});
    CHECK(running() == kStatesMax);  // one ended, and the one that waited began
    first.tell(kConductor, msg::Stop{{other, Attempt{2}, kSceneRoute.epoch}});
    CHECK(running() == kStatesMax - 1);
}

TEST_CASE(
    "a batch that claims to need no prompt is not verified before the prompt is in the cache") {
    const Request request = scene_request();
    BatchPool pool;
    Segment front{kFirst, plan_between({}, kLast), 0, kFakeLayers / 2};
    SegmentPlan plan = plan_between(kFirst, {});
    plan.verdict_to = {kConductor, kFirst, kDraft};
    Segment back{kLast, plan, kFakeLayers / 2, kFakeLayers};
    ProtocolScene<SegmentActor>& first = front.scene;
    ProtocolScene<SegmentActor>& last = back.scene;
    first.context.out = &pool.producer;
    last.context.in = &pool.consumer;

    first.begin(request);
    last.begin(request);
    first.run_job("prefill");
    const auto prefill = first.expect<msg::Batch>(kLast);
    first.tell(kDraft, scene_proposal(request.text, {plain_answer(request).answer[0]}));
    first.run_job("verify");
    auto batch = first.expect<msg::Batch>(kLast);
    batch.parts[0].base = 0;
    SUBCASE("the prompt never comes") {
        last.tell(kFirst, batch);
        CHECK(last.context.jobs_waiting() == 0);
        last.expect_nothing_more();
    }
    SUBCASE("the prompt is there") {
        last.tell(kFirst, prefill);
        last.tell(kFirst, batch);
        last.run_job("prefill");
        last.run_job("verify");
        CHECK(last.expect<msg::Verdict>(kConductor).tokens[0] == plain_answer(request).answer[0]);
        (void)last.expect<msg::Verdict>(kFirst);
        (void)last.expect<msg::Verdict>(kDraft);
        last.expect_nothing_more();
    }
}

TEST_CASE(
    "EarlyVerify: alternatives go to draft and correct, the next token to the first segment") {
    const Request request = scene_request();
    const std::vector<TokenId> answer = plain_answer(request).answer;
    BatchPool to_middle;
    BatchPool to_last;
    SegmentPlan first_plan = plan_between({}, kMiddle);
    first_plan.dispatch.batches_in_flight_max = 2;
    Segment front{kFirst, first_plan, 0, 3};
    SegmentPlan plan = plan_between(kFirst, kLast);
    plan.exit = ExitOptions{.sends_candidates = true,
                            .top = 2,
                            .candidates_to = {kDraft, kCorrect},
                            .proposes = true,
                            .gate = 0.0F,
                            .always_on = true};
    Segment with_exit{kMiddle, plan, 3, 6};
    ProtocolScene<SegmentActor>& first = front.scene;
    ProtocolScene<SegmentActor>& middle = with_exit.scene;
    first.context.out = &to_middle.producer;
    middle.context.in = &to_middle.consumer;
    middle.context.out = &to_last.producer;

    first.begin(request);
    middle.begin(request);
    first.run_job("prefill");
    middle.tell(kFirst, first.expect<msg::Batch>(kMiddle));
    middle.run_job("prefill");
    (void)middle.expect<msg::Batch>(kLast);
    middle.expect_nothing_more();  // no candidate after a prompt's inner tokens

    first.tell(kDraft, scene_proposal(request.text, {answer[0]}));
    first.run_job("verify");
    const auto batch = first.expect<msg::Batch>(kMiddle);
    middle.tell(kFirst, batch);
    middle.run_job("verify");
    CHECK(middle.expect<msg::Batch>(kLast).rows.size() == 2);  // before the exit is evaluated
    middle.run_job("exit");
    const auto candidates = middle.expect<msg::Proposal>(kDraft);
    CHECK(middle.expect<msg::Proposal>(kCorrect).count == candidates.count);
    const auto nodes = std::span{candidates.nodes}.first(candidates.count);
    CHECK(nodes[0].token == answer[0]);
    CHECK(std::count_if(nodes.begin(), nodes.end(), [](const msg::ProposedNode& node) {
              return node.origin == msg::Origin::Exit;
          }) == 4);  // two after each row
    const auto early = middle.expect<msg::Proposal>(kFirst);
    REQUIRE(early.count == 2);
    CHECK(early.nodes[1].parent == 0);
    CHECK(early.nodes[1].origin == msg::Origin::Exit);
    middle.expect_nothing_more();

    first.tell(kMiddle, early);  // starts at layer 0 before the verdict
    first.run_job("verify");
    const auto next = first.expect<msg::Batch>(kMiddle);
    REQUIRE(next.rows.size() == 1);
    CHECK(next.rows[0].parent == batch.rows[1].node.value);
    CHECK(next.rows[0].token == early.nodes[1].token);
    middle.tell(kLast, scene_verdict(request.text, {answer[0], answer[1]}, {batch.rows[1].node}));
    first.expect_nothing_more();
    middle.expect_nothing_more();
}

TEST_CASE("a job of a cancelled attempt is cut, but not one that computes shared blocks again") {
    const Request request = scene_request();
    for (const bool again : {false, true}) {
        for (const bool by_board : {false, true}) {
            CAPTURE(again);
            CAPTURE(by_board);
            BatchPool to_middle;
            BatchPool to_last;
            Segment front{kFirst, plan_between({}, kMiddle), 0, 3};
            Segment between{kMiddle, plan_between(kFirst, kLast), 3, 6};
            ProtocolScene<SegmentActor>& first = front.scene;
            ProtocolScene<SegmentActor>& middle = between.scene;
            first.context.out = &to_middle.producer;
            middle.context.in = &to_middle.consumer;
            middle.context.out = &to_last.producer;
            first.begin(request);
            middle.begin(request);
            first.run_job("prefill");
            auto batch = first.expect<msg::Batch>(kMiddle);
            if (again) batch.parts[0].last = kMiddle;
            middle.tell(kFirst, batch);
            REQUIRE(middle.context.jobs_waiting() == 1);
            const auto keys = [&] {
                std::vector<std::byte> bytes(between.backend.kv_bytes());
                between.backend.read_kv(batch.rows.front().slot, bytes);
                return bytes;
            };
            const std::vector<std::byte> before = keys();
            if (by_board) {
                middle.context.word = CancelBoard::mark_of(kSceneRequest, Attempt{2});
            } else {
                middle.tell(kConductor, msg::Stop{kSceneRoute});
            }
            REQUIRE(middle.context.run_job());
            CHECK((keys() != before) == again);
        }
    }
}

TEST_CASE("a segment reports kinds that none of its roles handles, and senders out of place") {
    const auto refused = [](StageId from, const auto& message) {
        BatchPool pool;
        Segment segment{kMiddle, plan_between(kFirst, kLast), 3, 6};
        segment.scene.context.out = &pool.producer;
        segment.scene.actor.on_start(segment.scene.context);
        segment.scene.actor.handle(from, static_cast<std::uint16_t>(message.kKind),
                                   msg::frame_of(message));
        CHECK_FALSE(segment.scene.context.failure);
        REQUIRE(segment.scene.context.faults.size() == 1);
        CHECK(segment.scene.context.faults[0].first == from);
        return segment.scene.context.faults[0].second.what;
    };
    CHECK(refused(kDraft, msg::Proposal{}) ==
          "stage 4 sent a message of kind 1, which this stage does not handle");
    CHECK(refused(kDraft, msg::TensorNote{}) ==
          "stage 4 sent a message of kind 5, which this stage does not handle");
    const msg::Batch batch{
        .epoch = Epoch{1}, .parts = {msg::BatchPart{}}, .rows = {msg::BatchRow{}}};
    CHECK(refused(kLast, batch) ==
          "a batch from stage 3, which is not the segment before this one");
    CHECK(refused(kFirst, msg::Verdict{}) ==
          "a verdict from stage 1, which is not the last segment");
}

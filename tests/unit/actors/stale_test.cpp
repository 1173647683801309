#include "tests/support/pipeline/pipeline.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

msg::Route route(std::uint64_t request, std::uint32_t attempt) {
    return {.request = RequestId{request}, .attempt = Attempt{attempt}, .epoch = Epoch{1}};
}

}  // namespace

TEST_CASE("messages of an old attempt change nothing") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        const Request request = small_request(seed);
        const Oracle oracle = plain_answer(request);
        const int segments = 1 + static_cast<int>(seed % 3);
        PipelineOptions options{
            .segments = segments, .drafting = Drafting::SlowOracle, .seed = seed};
        options.dispatch.batches_in_flight_max = 2;
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(kOne, request);
        // The first attempt is cut short somewhere; its messages are still on their way.
        const int cut = static_cast<int>(seed % 7);
        pipeline.world.run([&] { return pipeline.conductor.verdicts >= cut; });
        const Attempt second = pipeline.conductor.log.restart(kOne).value();
        BeginPayload replay{request};
        const auto answer = pipeline.conductor.log.answer(kOne);
        replay.text.insert(replay.text.end(), answer.begin(), answer.end());
        replay.replayed = static_cast<std::int32_t>(answer.size());
        pipeline.begin(kOne, replay, second);
        msg::Verdict old{};
        old.route = route(1, 0);
        old.base = static_cast<Position>(replay.text.size());
        old.count = 1;
        if (segments > 1) pipeline.world.inject(segment_id(segments), kFirstSegment, old);
        pipeline.world.inject(segment_id(segments), kTheConductor, old);
        pipeline.run_until_finished();
        const auto committed = pipeline.conductor.log.answer(kOne);
        CHECK(std::vector<TokenId>(committed.begin(), committed.end()) == oracle.answer);
        CHECK(pipeline.conductor.finish == oracle.finish);
        pipeline.stop(kOne, second);
        pipeline.run_dry();
        CHECK(pipeline.world.tensors_all_free());
    }
}

TEST_CASE("a draft that runs far ahead of the first segment's Begin does no harm") {
    const Request request = small_request(4);
    const Oracle oracle = plain_answer(request);
    Pipeline pipeline{{.segments = 2, .drafting = Drafting::Mute}, request, oracle};
    msg::Proposal early{};
    early.root_position = static_cast<Position>(request.text.size()) - 1;
    early.root_token = request.text.back();
    for (std::uint32_t i = 0; i < 4 * AttemptFilter::kHeldMax; ++i) {
        early.route = route(1 + i % kRequestsMax, 1);
        early.count = 1;
        early.nodes[0] = {.token = oracle.answer[0],
                          .parent = msg::kBelowRoot,
                          .origin = msg::Origin::Trunk,
                          .log_prob = 0.0F};
        pipeline.world.inject(kTheDraft, kFirstSegment, early);
    }
    pipeline.run_dry();
    pipeline.open_and_begin(kOne, request);
    pipeline.run_until_finished();
    const auto committed = pipeline.conductor.log.answer(kOne);
    CHECK(std::vector<TokenId>(committed.begin(), committed.end()) == oracle.answer);
    CHECK(pipeline.segment_actors.front()->scheduler()->proposals().used == 1);
}

TEST_CASE("a segment that is destroyed with batches in its queue touches no tensor any more") {
    const Request request = small_request(4);
    Pipeline pipeline{{.segments = 2}, request, {}};
    const Attempt attempt = pipeline.conductor.log.open(kOne, request.text).value();
    pipeline.world.post(
        kFirstSegment,
        control::Begin{.request = kOne, .attempt = attempt, .payload = encode_begin({request})});
    pipeline.run_dry();
    // The pool may be gone by then: its memory belongs to the stage's loop, not to the actor.
    pipeline.segment_actors[1].reset();
    CHECK_FALSE(pipeline.world.tensors_all_free());
}

TEST_CASE("a request that is stopped in the middle makes room for the next one") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        const Request request = small_request(seed);
        const Oracle oracle = plain_answer(request);
        const int segments = 1 + static_cast<int>(seed % 3);
        // The cache holds the context of one request and a page for siblings.
        PipelineOptions options{.segments = segments,
                                .drafting = Drafting::Babble,
                                .seed = seed,
                                .kv_slots = request.context + kKvPageSlots};
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(kOne, request);
        pipeline.world.run([&] { return pipeline.conductor.verdicts >= 3; });
        pipeline.stop(kOne, Attempt{1});
        pipeline.run_dry();
        CHECK(pipeline.world.tensors_all_free());

        pipeline.open_and_begin(RequestId{2}, request);
        pipeline.run_until_finished();
        const auto answer = pipeline.conductor.log.answer(RequestId{2});
        CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracle.answer);
        pipeline.run_dry();
        CHECK(pipeline.segment_actors.front()->scheduler()->pages().in_use() == 0);
    }
}

TEST_CASE("a verdict that does not continue the text is refused, and its sender reported") {
    const Request request = small_request(2);
    Pipeline pipeline{{.segments = 2}, request, {}};
    pipeline.open_and_begin(kOne, request);
    pipeline.world.run([&] { return pipeline.conductor.verdicts >= 2; });
    msg::Verdict wrong{};
    wrong.route = route(1, 1);
    wrong.base = 300;
    wrong.count = 1;
    pipeline.world.inject(segment_id(2), kFirstSegment, wrong);
    pipeline.world.run([] { return false; });
    CHECK_FALSE(pipeline.world.failure);
    REQUIRE(pipeline.world.faults.size() == 1);
    CHECK(pipeline.world.faults[0].peer == segment_id(2));
    CHECK(pipeline.world.faults[0].error.code == Errc::Protocol);
    CHECK(pipeline.world.faults[0].error.what.find("position 300") != std::string::npos);
}

TEST_CASE("a draft that never answers is waited for only a few times") {
    const Request request = small_request(7);
    const Oracle oracle = plain_answer(request);
    PipelineOptions options{.segments = 1, .drafting = Drafting::Mute};
    options.dispatch.proposal_wait = Micros{100'000};
    Pipeline pipeline{options, request, oracle};
    pipeline.open_and_begin(kOne, request);
    pipeline.run_until_finished();
    CHECK(pipeline.segment_actors.front()->scheduler()->proposals().waits_expired == 3);
    CHECK(pipeline.world.now < Micros{400'000});
}

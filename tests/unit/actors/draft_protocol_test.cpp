// The protocols of the speculative stages, DraftActor and CorrectActor, as the exchange of messages
// that their headers declare.
#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/draft_bench.hpp"
#include "tests/unit/actors/protocol_scene.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

TEST_CASE("Draft: a proposal after each verdict; the trunk and its keys go to Correct") {
    const Request request = scene_request();
    const std::vector<TokenId> answer = plain_answer(request).answer;
    FakeBackend backend{0, kFakeLayers, 256};
    ScriptedPool pool{4, kFakeLayers * sizeof(std::uint64_t)};
    ProtocolScene<DraftActor> draft{
        kDraftId, plan_of({.pace = DraftPace::Sequential, .gamma = 2, .draft_reach_min = 0.0F}),
        with_model(backend), kCorrectId};
    draft.context.out = &pool.producer;

    draft.begin(request);
    draft.run_job("draft");
    CHECK(draft.expect<msg::Proposal>(kCorrectId).count == 1);
    CHECK(draft.expect<msg::TensorNote>(kCorrectId).first_position == 2);  // of the root
    draft.run_job("draft");
    CHECK(draft.expect<msg::Proposal>(kCorrectId).count == 2);
    CHECK(draft.expect<msg::TensorNote>(kCorrectId).first_position == 3);
    const auto proposal = draft.expect<msg::Proposal>(kFirst);
    CHECK(proposal.state == msg::ProposalState::Complete);
    REQUIRE(proposal.count == 2);
    CHECK(proposal.root_position == 2);
    CHECK(proposal.nodes[0].token == answer[0]);
    CHECK(proposal.nodes[1].token == answer[1]);
    draft.expect_nothing_more();  // it waits for the verdict

    draft.tell(kVerifier, scene_verdict(request.text, {answer[0], answer[1], answer[2]}, {}));
    draft.run_job("draft");
    CHECK(draft.expect<msg::Proposal>(kCorrectId).root_position == 5);
    CHECK(draft.expect<msg::TensorNote>(kCorrectId).first_position == 5);
    draft.tell(kConductor, msg::Stop{kSceneRoute});
    draft.run_job("draft");  // it was under way
    draft.expect_nothing_more();
}

TEST_CASE("Correct: candidates below what the exit proposes, to the first segment and to Draft") {
    const Request request = scene_request();
    const std::vector<TokenId> answer = plain_answer(request).answer;
    const TokenId other = (answer[0] + 1) % kFakeVocab;
    FakeBackend backend{0, kFakeLayers, 256};
    ScriptedPool pool{1, kFakeLayers * sizeof(std::uint64_t)};
    ProtocolScene<CorrectActor> correct{kCorrectId,
                                        plan_of({.pace = DraftPace::Ahead,
                                                 .gamma = 2,
                                                 .exit_alternatives = 1,
                                                 .draft_reach_min = 0.0F}),
                                        with_model(backend), kDraftId};
    correct.context.in = &pool.consumer;

    correct.begin(request);
    correct.tell(kDraftId, scene_proposal(request.text, {answer[0], answer[1]}));
    // A note whose request has another attempt: its slot goes back all the same.
    const PoolRef slot = pool.producer.acquire().value();
    pool.producer.publish(slot, kFakeLayers * sizeof(std::uint64_t));
    correct.tell(kDraftId, msg::TensorNote{.route = {kSceneRequest, Attempt{0}, Epoch{1}},
                                           .role = msg::TensorRole::Keys,
                                           .type = msg::TensorType::I8,
                                           .layer = 0,
                                           .first_position = 3,
                                           .rows = 1,
                                           .row_elements = kFakeLayers * sizeof(std::uint64_t),
                                           .tensor = slot.index,
                                           .tensor_generation = slot.generation});
    CHECK(pool.producer.acquire().has_value());
    correct.expect_nothing_more();  // the exit has proposed nothing yet

    msg::Proposal candidates = scene_proposal(request.text, {other});
    candidates.nodes[0].origin = msg::Origin::Exit;
    correct.tell(kFirst, candidates);
    while (correct.context.jobs_waiting() > 0) correct.run_job("draft");
    std::vector<msg::Proposal> proposals = correct.context.take<msg::Proposal>(kFirst);
    REQUIRE_FALSE(proposals.empty());
    CHECK(correct.context.take<msg::Proposal>(kDraftId).size() == proposals.size());
    const auto nodes = std::span{proposals.back().nodes}.first(proposals.back().count);
    const auto proposed = std::find_if(
        nodes.begin(), nodes.end(),
        [](const msg::ProposedNode& node) { return node.origin == msg::Origin::Exit; });
    REQUIRE(proposed != nodes.end());
    CHECK(proposed->token == other);
    const auto place = static_cast<std::int16_t>(proposed - nodes.begin());
    const auto below = std::find_if(nodes.begin(), nodes.end(), [&](const msg::ProposedNode& node) {
        return node.parent == place;
    });
    REQUIRE(below != nodes.end());
    std::vector<TokenId> text = request.text;
    text.push_back(other);
    CHECK(below->token == plain_next(request, text));

    correct.tell(kConductor, msg::Stop{kSceneRoute});
    correct.tell(kFirst, candidates);
    correct.expect_nothing_more();
}

// Batches of prefill: how many rows of which prompts they have.
#include <vector>

#include "actors/protocol/counters.hpp"
#include "tests/support/pipeline/pipeline.hpp"
#include "tests/unit/actors/batch_scheduler_scene.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

using Scene = BatchSchedulerScene;

}  // namespace

TEST_CASE("prefill goes in batches of prefill_rows, and beside 64 verify rows as its share says") {
    Scene scene{{.start = StartRule::AtOnce, .prefill_rows = 200, .prompt_share = 0.5F}, 16384};
    for (int i = 0; i < 3; ++i) scene.begin({0}, std::vector<TokenId>(60, 1));
    for (std::size_t i = 0; i < 3; ++i) {
        msg::Proposal ones = scene.proposal(i, 0);
        std::int16_t at = msg::kBelowRoot;
        for (int depth = 0; depth < 32; ++depth) at = Scene::add(ones, at, 1);
        scene.scheduler.propose(ones, ProposalSender::Draft, scene.now);
    }
    scene.begin(std::vector<TokenId>(500, 2), {1});
    REQUIRE(scene.form());
    const msg::Batch& mixed = scene.in_flight.back();
    REQUIRE(mixed.parts.size() == 4);
    CHECK(mixed.parts[0].rows + mixed.parts[1].rows + mixed.parts[2].rows == kVerifyRowsMax);
    CHECK(mixed.parts[3].rows == 100);
    REQUIRE(scene.form());
    CHECK(scene.in_flight.back().rows.size() == 200);
    CHECK(scene.in_flight.back().parts[0].base == 100);
    REQUIRE(scene.form());
    CHECK(scene.in_flight.back().rows.size() == 499 - 300);  // the rest: its last token is verified
}

TEST_CASE("prompts share a batch of prefill, the shortest gets the most of it") {
    Scene scene{{.start = StartRule::AtOnce, .prefill_rows = kBatchRowsMax}, 16384};
    scene.begin(std::vector<TokenId>(301, 2), {1});
    scene.begin(std::vector<TokenId>(501, 3), {1});
    REQUIRE(scene.form());
    const msg::Batch& first = scene.in_flight.back();
    REQUIRE(first.parts.size() == 2);
    CHECK(first.parts[0].rows == 300);
    CHECK(first.parts[1].rows == 212);
    REQUIRE(scene.form());
    const msg::Batch& second = scene.in_flight.back();
    REQUIRE(second.parts.size() == 2);
    CHECK(second.parts[0].kind == msg::BatchKind::Verify);
    CHECK(second.parts[1].base == 212);
    CHECK(second.parts[1].rows == 128);
}

TEST_CASE("a prompt goes through the layers in as many batches as prefill_rows says") {
    Request request = small_request(7);
    request.text.assign(701, 3);
    request.max_tokens = 1;
    request.context = 800;
    const Oracle oracle = plain_answer(request);
    const auto batches = [&](std::uint32_t prefill_rows) {
        PipelineOptions options{.segments = 3};
        options.dispatch.prefill_rows = prefill_rows;
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(RequestId{1}, request);
        pipeline.run_until_finished();
        CHECK(pipeline.world.counted(segment_id(3), counters::kPrefillRows) == 700);
        return pipeline.world.counted(segment_id(3), counters::kBatches) - 1;  // the root's
    };
    CHECK(batches(64) == 11);
    CHECK(batches(200) == 4);
    CHECK(batches(kBatchRowsMax) == 2);
}

// What a target that drafts for itself counts, against what its backend was asked to run.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/protocol/counters.hpp"
#include "actors/protocol/self_draft_state.hpp"
#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr HeadId kHintHead = HeadId::Adapter;  // its candidates are right as often as a test says

PipelineOptions drafting(double right) {
    PipelineOptions options;
    options.dispatch.start = StartRule::AtOnce;
    options.candidate_right = right;
    options.self_draft.emplace();
    options.self_draft->head = kHintHead;
    options.self_draft->gamma = 4;
    options.self_draft->auto_off = false;
    return options;
}

Request long_request(std::uint64_t seed) {
    Request request = small_request(seed);
    request.gamma = 4;
    return request;
}

std::uint64_t sublayers_of(std::span<const Row> rows) {
    std::uint64_t sum = 0;
    for (const Row& row : rows) {
        for (int s = row.first; s < row.last; ++s)
            sum += row.mask == nullptr || !row.mask->skips(s) ? 1 : 0;
    }
    return sum;
}

}  // namespace

TEST_CASE(
    "the sub-layers that are counted are those that the backend ran, with an exit and with a set") {
    for (const bool exits : {true, false}) {
        CAPTURE(exits);
        PipelineOptions options = drafting(0.5);
        if (exits) {
            options.self_draft->exit = 3;
        } else {
            options.self_draft->skip = SkipSet{kFakeLayers};
            options.self_draft->skip.set(3, true);
            options.self_draft->skip.set(6, true);
        }
        const Request request = long_request(5);
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{options, request, oracle};
        std::uint64_t run = 0;
        pipeline.backends.front()->on_rows = [&](std::span<const Row> rows) {
            run += sublayers_of(rows);
        };
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        const auto counted = [&](Counter c) { return pipeline.world.counted(kFirstSegment, c); };
        CHECK(counted(counters::kDraftSublayers) + counted(counters::kVerifySublayers) +
                  counted(counters::kPrefillSublayers) ==
              run);
        const std::uint64_t each = exits ? 6 : 2 * kFakeLayers - 2;
        CHECK(counted(counters::kDraftSublayers) == each * counted(counters::kDraftRows));
        CHECK(counted(counters::kPrefillSublayers) ==
              2 * kFakeLayers * counted(counters::kPrefillRows));
        CHECK(counted(counters::kDraftRows) > 20);
        CHECK(counted(counters::kOptimiseSublayers) == 0);
    }
}

TEST_CASE("trials are counted with the sub-layers that their rows ran") {
    PipelineOptions options = drafting(0.5);
    options.kv_slots = 2048;
    SelfDraftOptions& self = *options.self_draft;
    self.skip = SkipSet::uniform(kFakeLayers, 3, 1, 1);
    self.choice = SkipChoice::Search;
    self.window = 4;
    self.optimise_share = 1.0;
    self.search = {.layers = kFakeLayers, .ratio = 0.4, .bayes_every = 3, .seed = 2};
    const Request request = long_request(7);
    const Oracle oracle = plain_answer(request);
    Pipeline pipeline{options, request, oracle};
    std::uint64_t run = 0;
    pipeline.backends.front()->on_rows = [&](std::span<const Row> rows) {
        run += sublayers_of(rows);
    };
    pipeline.open_and_begin(kOne, request);
    pipeline.run_until_finished();
    pipeline.run_dry();
    const auto counted = [&](Counter c) { return pipeline.world.counted(kFirstSegment, c); };
    CHECK(counted(counters::kOptimiseSublayers) > 0);
    CHECK(counted(counters::kOptimiseJobs) > 0);
    CHECK(counted(counters::kDraftSublayers) + counted(counters::kVerifySublayers) +
              counted(counters::kPrefillSublayers) + counted(counters::kOptimiseSublayers) ==
          run);
    const auto state = self_draft_state(pipeline.world.gauges(kFirstSegment), kFakeLayers);
    REQUIRE(state.has_value());
    REQUIRE(state->left_out.has_value());
    CHECK(state->left_out->count() > 0);
    CHECK(state->trials > 0);
}

TEST_CASE("first choices that are accepted are the tokens beyond one per verdict") {
    for (const double right : {1.0, 0.5, 0.0}) {
        CAPTURE(right);
        PipelineOptions options = drafting(right);
        options.self_draft->exit = 4;
        const Request request = long_request(3);
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        const auto counted = [&](Counter c) { return pipeline.world.counted(kFirstSegment, c); };
        const std::size_t tokens = answer_of(pipeline, kOne).size();
        CHECK(counted(counters::kChainProposed) == counted(counters::kDraftRows));
        CHECK(counted(counters::kChainAccepted) ==
              tokens - static_cast<std::size_t>(pipeline.conductor.verdicts));
        CHECK((counted(counters::kChainAccepted) > 0) == (right > 0.0));
    }
}

TEST_CASE("an exit shows the layers behind it as left out") {
    PipelineOptions options = drafting(0.5);
    options.self_draft->exit = 3;
    const Request request = long_request(3);
    const Oracle oracle = plain_answer(request);
    Pipeline pipeline{options, request, oracle};
    pipeline.open_and_begin(kOne, request);
    pipeline.run_until_finished();
    const auto state = self_draft_state(pipeline.world.gauges(kFirstSegment), kFakeLayers);
    REQUIRE(state.has_value());
    REQUIRE(state->left_out.has_value());
    CHECK(state->left_out->first_skipped() == 6);
    CHECK(state->left_out->count() == 2 * (kFakeLayers - 3));
    CHECK(state->drafts);
}

// What a target that drafts for itself counts, against what its backend was asked to run.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/protocol/counters.hpp"
#include "actors/self_draft/self_draft_state.hpp"
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

/// A pipeline that has answered one request.
struct Answered {
    Answered(const PipelineOptions& options, const Request& request)
        : pipeline{options, request, plain_answer(request)} {
        pipeline.backends.front()->on_rows = [this](std::span<const Row> rows) {
            sublayers += sublayers_of(rows);
        };
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
    }
    [[nodiscard]] std::uint64_t counted(Counter counter) const {
        return pipeline.world.counted(kFirstSegment, counter);
    }
    /// As the first segment shows it.
    [[nodiscard]] SelfDraftState state() {
        const auto shown = self_draft_state(pipeline.world.gauges(kFirstSegment), kFakeLayers);
        REQUIRE(shown.has_value());
        REQUIRE(shown->skipped.has_value());
        return *shown;
    }

    Pipeline pipeline;
    std::uint64_t sublayers = 0;  // that its backend was asked to run
};

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
        const Answered run{options, long_request(5)};
        CHECK(run.counted(counters::kDraftSublayers) + run.counted(counters::kVerifySublayers) +
                  run.counted(counters::kPrefillSublayers) ==
              run.sublayers);
        const std::uint64_t each = exits ? 6 : 2 * kFakeLayers - 2;
        CHECK(run.counted(counters::kDraftSublayers) == each * run.counted(counters::kDraftRows));
        CHECK(run.counted(counters::kPrefillSublayers) ==
              2 * kFakeLayers * run.counted(counters::kPrefillRows));
        CHECK(run.counted(counters::kDraftRows) > 20);
        CHECK(run.counted(counters::kOptimiseSublayers) == 0);
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
    Answered run{options, long_request(7)};
    run.pipeline.run_dry();
    CHECK(run.counted(counters::kOptimiseSublayers) > 0);
    CHECK(run.counted(counters::kOptimiseJobs) > 0);
    CHECK(run.counted(counters::kDraftSublayers) + run.counted(counters::kVerifySublayers) +
              run.counted(counters::kPrefillSublayers) +
              run.counted(counters::kOptimiseSublayers) ==
          run.sublayers);
    CHECK(run.state().skipped->count() > 0);
    CHECK(run.state().trials > 0);
}

TEST_CASE("first choices that are accepted are the tokens beyond one per verdict") {
    for (const double right : {1.0, 0.5, 0.0}) {
        CAPTURE(right);
        PipelineOptions options = drafting(right);
        options.self_draft->exit = 4;
        Answered run{options, long_request(3)};
        const std::size_t tokens = answer_of(run.pipeline, kOne).size();
        CHECK(run.counted(counters::kChainProposed) == run.counted(counters::kDraftRows));
        CHECK(run.counted(counters::kChainAccepted) ==
              tokens - static_cast<std::size_t>(run.pipeline.conductor.verdicts));
        CHECK((run.counted(counters::kChainAccepted) > 0) == (right > 0.0));
    }
}

TEST_CASE("an exit shows the layers behind it as left out") {
    PipelineOptions options = drafting(0.5);
    options.self_draft->exit = 3;
    const SelfDraftState state = Answered{options, long_request(3)}.state();
    CHECK(state.skipped->first_skipped() == 6);
    CHECK(state.skipped->count() == 2 * (kFakeLayers - 3));
    CHECK(state.drafts);
}

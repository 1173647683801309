// When the programme of a target that drafts for itself is due, and what it is submitted as.
#include "actors/self_draft/skip_programme.hpp"

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/toy/toy_backend.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

RequestState programme_state(std::uint32_t attempt, std::vector<TokenId> text) {
    Request request;
    request.text = std::move(text);
    request.context = 64;
    return RequestState{RequestId{3}, Attempt{attempt}, BeginPayload{request}, TreeRole::Names};
}

}  // namespace

TEST_CASE("a programme is due on the text of its residuals alone, until it has run") {
    FakeBackend backend{0, kFakeLayers, 128};
    SelfDraftOptions options;
    options.programme_skip = 0;  // nothing is to be found: no layer is run
    SkipProgramme programme{options, backend};
    const RequestState state = programme_state(1, {1, 2, 3, 4});
    CHECK_FALSE(programme.due(state));

    const std::vector<float> residuals(std::size_t{2} * kFakeLayers * kFakeDim, 0.5F);
    programme.take_residuals(state, 2, residuals);
    CHECK(programme.due(state));
    CHECK_FALSE(programme.due(programme_state(2, {1, 2, 3, 4})));
    CHECK_FALSE(programme.due(programme_state(1, {1, 2, 3, 4, 5})));  // it went on without a draft
    const JobLabel label = programme.label(state);
    CHECK(label.request == state.request());
    CHECK(label.rows == 1);
    CHECK(label.layers == kFakeLayers);
    CHECK(label.context == 3);

    REQUIRE(programme.run(state, {}) == RunOutcome::Done);
    const auto set = programme.finish(RunOutcome::Done);
    REQUIRE(set);
    CHECK(set->count() == 0);
    CHECK(programme.take_sublayers() == 0);
    CHECK_FALSE(programme.due(state));

    programme.take_residuals(state, 2, residuals);
    CHECK_FALSE(programme.finish(RunOutcome::Cancelled));
    CHECK_FALSE(programme.due(state));
}

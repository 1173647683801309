#include <array>

#include <doctest/doctest.h>

#include "actors/protocol/counters.hpp"
#include "actors/self_draft/self_draft_state.hpp"
#include "tests/unit/actors/conductor_bench.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose
using paceline::conductor_test::Recorder;

namespace {

using Gauges = std::array<std::uint64_t, kGauges>;

Gauges shown(const SelfDraftState& state) {
    Recorder context;
    show(context, state);
    Gauges all{};
    for (const auto& [gauge, value] : context.gauges) all[static_cast<std::size_t>(gauge)] = value;
    return all;
}

SelfDraftState state_of(const SkipSet& set) {
    return {.drafts = false,
            .gain = 0.875,
            .threshold = 0.625,
            .matchness = 0.75,
            .trials = 34,
            .skipped_count = set.count(),
            .skipped = set};
}

std::uint64_t& at(Gauges& all, Gauge gauge) {
    return all[static_cast<std::size_t>(gauge)];
}

}  // namespace

TEST_CASE("what a stage shows of its draft is what a reader finds, for models of every depth") {
    for (const int layers : {1, 2, 30, 32, 33, 80, 127, 128}) {
        CAPTURE(layers);
        SkipSet set{layers};
        for (int s = 0; s < 2 * layers; s += 3) set.set(s, true);
        set.set(2 * layers - 1, true);
        const auto read = self_draft_state(shown(state_of(set)), layers);
        REQUIRE(read.has_value());
        CHECK(!read->drafts);
        CHECK(read->gain == doctest::Approx(0.875));
        CHECK(read->threshold == doctest::Approx(0.625));
        CHECK(read->matchness == doctest::Approx(0.75));
        CHECK(read->trials == 34);
        REQUIRE(read->skipped.has_value());
        CHECK(*read->skipped == set);
    }
}

TEST_CASE(
    "a model with more sub-layers than there are bits shows how many are left out, but not which") {
    SkipSet set{200};
    set.set(3, true);
    set.set(399, true);
    const auto read = self_draft_state(shown(state_of(set)), 200);
    REQUIRE(read.has_value());
    CHECK(read->skipped_count == 2);
    CHECK(!read->skipped.has_value());
}

TEST_CASE("gauges that were never written, or are out of range, are no state") {
    CHECK(!self_draft_state(Gauges{}, 4).has_value());
    SkipSet set{4};
    set.set(2, true);
    const Gauges good = shown(state_of(set));
    REQUIRE(self_draft_state(good, 4).has_value());
    for (const Gauge gauge :
         {gauges::kDraftPhase, gauges::kDraftGain, gauges::kDraftThreshold, gauges::kMatchness,
          gauges::kTrials, gauges::kSkipped, gauges::skipped_word(0), gauges::skipped_word(3)}) {
        Gauges bad = good;
        at(bad, gauge) = ~std::uint64_t{0};
        CAPTURE(static_cast<int>(gauge));
        CHECK(!self_draft_state(bad, 4).has_value());
    }
}

TEST_CASE("a set that is read while it changes is left out, the rest is not") {
    SkipSet set{4};
    set.set(2, true);
    Gauges torn = shown(state_of(set));
    at(torn, gauges::skipped_word(0)) |= 1U << 5U;
    const auto read = self_draft_state(torn, 4);
    REQUIRE(read.has_value());
    CHECK(!read->skipped.has_value());
    CHECK(read->trials == 34);
}

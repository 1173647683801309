// The toy pipeline without faults: in one process and in several, the tokens are those of plain
// decoding.
#include <doctest/doctest.h>

#include "tests/proc/leftovers.hpp"
#include "tests/proc/toy_run.hpp"
#include "tests/support/local_world.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr ToyDraft kDrafts[] = {ToyDraft::None, ToyDraft::Lookup, ToyDraft::Oracle};

void check_in_one_process(const ToyPlan& plan, const ToyLoad& load) {
    ConductorActor conductor{toy_conductor_plan(plan), kFakeVocab, plan.kv_slots};
    ToyClient client{conductor, load};
    LocalWorld world{LocalWorld::Clock::Virtual};
    world.add(kConductor, conductor);
    world.add(kToyClient, client);
    std::vector<ToyActor> actors;
    for (const StageId id : toy_actors(plan)) {
        actors.push_back(make_toy_actor(plan, id));
        world.add(id, *actors.back().actor);
    }
    for (const EdgeSpec& edge : toy_edges(plan)) world.connect(edge);
    const Status ended = world.run();
    CHECK_MESSAGE(ended.ok(), (ended.ok() ? "" : ended.error().what));
    for (const std::string& complaint : client.complaints()) FAIL_CHECK(complaint);
    for (const Error& failure : client.failures()) FAIL_CHECK(failure.what);
    CHECK(client.answered() == std::max(load.answers, load.streams));
}

}  // namespace

TEST_CASE("a toy decode in one process commits plain decoding's tokens") {
    for (int segments = 1; segments <= 4; ++segments) {
        for (const ToyDraft draft : kDrafts) {
            for (const int streams : {1, 8, 32}) {
                CAPTURE(segments);
                CAPTURE(streams);
                const bool sampled = (segments + streams) % 2 == 0;
                check_in_one_process({.segments = segments, .draft = draft, .exits = sampled},
                                     {.streams = streams, .answers = 40, .sampled = sampled});
            }
        }
    }
}

TEST_CASE("over processes it commits the same, whoever shares a process") {
    constexpr ToyHousing kHousings[] = {ToyHousing::Apart, ToyHousing::DraftWithFirst,
                                        ToyHousing::Pairs, ToyHousing::Together};
    const Leftovers before;
    for (int segments = 1; segments <= 4; ++segments) {
        for (const ToyHousing housing : kHousings) {
            const ToyDraft draft = kDrafts[(segments + static_cast<int>(housing)) % 3];
            CAPTURE(segments);
            CAPTURE(static_cast<int>(housing));
            CAPTURE(static_cast<int>(draft));
            const bool exits = (segments + static_cast<int>(housing)) % 2 == 0;
            ToyRun run{
                {.plan = {.segments = segments, .draft = draft, .housing = housing, .exits = exits},
                 .load = {.streams = 4, .answers = 12, .sampled = segments % 2 == 0}}};
            check_decodes(run);
        }
    }
}

TEST_CASE("over processes it serves 1, 8 and 32 requests at once, greedy and sampled") {
    const Leftovers before;
    for (const int streams : {1, 8, 32}) {
        for (const bool sampled : {false, true}) {
            CAPTURE(streams);
            CAPTURE(sampled);
            ToyRun run{{.plan = {.segments = 3, .draft = ToyDraft::Oracle},
                        .load = {.streams = streams, .answers = 40, .sampled = sampled}}};
            check_decodes(run);
            CHECK(run.client().replays() == 0);
        }
    }
}

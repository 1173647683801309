// A stage that writes garbage into the rings that it shares with others: no other stage crashes,
// and the committed tokens are right.
#include <utility>

#include <doctest/doctest.h>

#include "tests/proc/leftovers.hpp"
#include "tests/proc/toy_run.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// Returns how many other incarnations were replaced before, or with, the rogue one.
int replaced_beside_rogue(ToyAction action, int stage) {
    const ToyFault scribbles{
        .action = action, .point = FaultPoint::JobStarted, .nth = 5, .spread = 10};
    ToyRunOptions options{.plan = {.segments = 2, .draft = ToyDraft::Oracle, .layer_micros = 60},
                          .load = {.streams = 8, .sampled = stage % 2 == 0},
                          .faults = {{toy_segment(stage), scribbles}}};
    // A frame's header is always checked; with [supervision] checksums the payload is checked too.
    options.supervision.checksums = WiringPlan::Checksums::Payloads;
    ToyRun* running = nullptr;
    options.load.more = [&running, stage] {
        return running->saboteur().deaths_of(toy_segment(stage)) < 1;
    };
    ToyRun run{std::move(options)};
    running = &run;
    check_decodes(run);
    CHECK(run.saboteur().deaths_of(toy_segment(stage)) >= 1);
    return run.saboteur().deaths() - run.saboteur().deaths_of(toy_segment(stage));
}

}  // namespace

TEST_CASE("a stage that scribbles over the rings it writes to is replaced") {
    const Leftovers before;
    for (const int stage : {1, 2, 3}) {
        CAPTURE(stage);
        CHECK(replaced_beside_rogue(ToyAction::ScribbleOut, stage) == 0);
    }
}

TEST_CASE("a stage that scribbles over the rings it reads from is replaced") {
    const Leftovers before;
    for (const int stage : {1, 2, 3}) {
        CAPTURE(stage);
        // It may be believed once when it finds its own scribble and blames another.
        const int others = replaced_beside_rogue(ToyAction::ScribbleIn, stage);
        // So few that the usual restart rules would bear it.
        CHECK(others <= static_cast<int>(RestartRules{}.restarts_max));
    }
}

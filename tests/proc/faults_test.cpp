// Stages that hang, run out of memory, or do not come back.
#include <chrono>
#include <fmt/core.h>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/proc/leftovers.hpp"
#include "tests/proc/toy_run.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same
using namespace std::chrono_literals;

namespace {

ToyPlan two_and_a_draft() {
    return {.segments = 2, .draft = ToyDraft::Oracle, .layer_micros = 60};
}

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a stage that hangs, in a job or elsewhere, is replaced after the hang limit") {
    const Leftovers before;
    for (const FaultPoint point :
         {FaultPoint::JobStarted, FaultPoint::BeginTaken, FaultPoint::RingMidCopy}) {
        for (const int stage : {1, 2, 3}) {
            CAPTURE(static_cast<int>(point));
            CAPTURE(stage);
            const ToyFault hangs{.action = ToyAction::Hang, .point = point, .nth = 6};
            ToyRunOptions options{.plan = two_and_a_draft(),
                                  .load = {.streams = 8},
                                  .faults = {{toy_segment(stage), hangs}},
                                  .deaths_wanted = 1};
            options.supervision.hang_limit = 300ms;
            ToyRun run{std::move(options)};
            check_decodes(run);
            CHECK(run.saboteur().deaths_of(toy_segment(stage)) >= 1);
        }
    }
}

TEST_CASE("a stage whose first job is slow in every incarnation gets through with the second") {
    const Leftovers before;
    const ToyFault slow{.action = ToyAction::SlowRun, .last_epoch = 99};
    ToyRunOptions options{.plan = two_and_a_draft(),
                          .load = {.more = [] { return false; }},
                          .faults = {{toy_segment(2), slow}},
                          .poison_limit = 12};
    options.supervision.hang_limit = 200ms;
    ToyRun run{std::move(options)};
    check_decodes(run);
    // Once for the slow job; a busy machine may also take a stage for one that hangs. Without what
    // the second incarnation inherits, the request would be given up after its twelfth loss.
    CHECK(run.saboteur().deaths_of(toy_segment(2)) >= 1);
}

TEST_CASE("a first prefill may take as long as so many rows take") {
    const Leftovers before;
    ToyRunOptions options{.plan = {.segments = 2, .row_micros = 30'000},
                          .load = {.seed = 3, .max_tokens = 3, .more = [] { return false; }}};
    options.supervision.hang_limit = 150ms;
    CHECK(toy_request(3000).text.size() > 5);  // of 30 ms each
    ToyRun run{std::move(options)};
    check_decodes(run);
    // A stage that a busy machine does not run for so long may be taken for one that hangs, but not
    // in a job: that may take many times what its rows took at the start.
    CHECK_MESSAGE(!has(run.news(), "hangs: computing"), run.news());
}

TEST_CASE("a stage without memory for a job is replaced") {
    const Leftovers before;
    for (const int stage : {1, 2}) {
        CAPTURE(stage);
        const ToyFault starves{
            .action = ToyAction::OutOfMemory, .last_epoch = 3, .nth = 1, .spread = 12};
        ToyRun run{{.plan = two_and_a_draft(),
                    .load = {.streams = 8, .sampled = true},
                    .faults = {{toy_segment(stage), starves}},
                    .deaths_wanted = 3}};
        check_decodes(run);
        CHECK(run.saboteur().deaths_of(toy_segment(stage)) == 3);
        CHECK_MESSAGE(has(run.news(), "out of memory"), run.news());
    }
}

TEST_CASE("a stage that fails to load is tried again") {
    const Leftovers before;
    const ToyFault fails{.action = ToyAction::ExitOnLoad, .first_epoch = 2, .last_epoch = 3};
    ToyRun run{{.plan = two_and_a_draft(),
                .load = {.streams = 8},
                .sabotage = {.signals = 1, .only = toy_segment(1)},
                .faults = {{toy_segment(1), fails}}}};
    check_decodes(run);
    CHECK(run.saboteur().deaths_of(toy_segment(1)) == 3);
}

TEST_CASE("an essential stage that does not come back ends the run with its name and reason") {
    const Leftovers before;
    const ToyFault hangs{.action = ToyAction::HangOnLoad, .first_epoch = 2, .last_epoch = 99};
    // Twice as long while the machine is too slow for the stages that do load.
    for (std::chrono::milliseconds limit = 1'500ms;; limit *= 2) {
        ToyRunOptions options{.plan = two_and_a_draft(),
                              .load = {.streams = 8},
                              .sabotage = {.signals = 1, .only = toy_segment(2)},
                              .faults = {{toy_segment(2), hangs}}};
        options.supervision.start_limit = limit;
        options.supervision.restarts.restarts_max = 1;
        ToyRun run{std::move(options)};
        const Status ended = run.decode();
        REQUIRE(!ended.ok());
        const std::string& what = ended.error().what;
        if (has(what, "did not load within") || has(what, "did not attach")) continue;
        CHECK_MESSAGE(has(what, "stage 'segment-2' died 2 times"), what);
        const std::string said = fmt::format("did not come back within {} ms", limit.count());
        CHECK_MESSAGE(has(what, said), what);
        for (const std::string& complaint : run.client().complaints()) FAIL_CHECK(complaint);
        break;
    }
}

TEST_CASE("a draft that does not come back is done without") {
    const Leftovers before;
    const StageId draft = toy_segment(3);
    const ToyFault exits{.action = ToyAction::ExitOnLoad, .first_epoch = 2, .last_epoch = 99};
    ToyRun* running = nullptr;
    ToyRunOptions options{.plan = two_and_a_draft(),
                          .load = {.streams = 8, .answers = 16},
                          .sabotage = {.signals = 1, .only = draft},
                          .faults = {{draft, exits}}};
    options.supervision.restarts.restarts_max = 3;
    options.load.more = [&running, draft] {
        return running->supervisor().health_of(draft) != StageHealth::Disabled;
    };
    ToyRun run{std::move(options)};
    running = &run;
    check_decodes(run);
    CHECK(run.client().replays() == 0);
    CHECK_MESSAGE(has(run.news(), "exited with code 3"), run.news());
    CHECK_MESSAGE(has(run.news(), "going on without it"), run.news());
}

TEST_CASE("a request that a stage dies of again and again is given up, with the reason") {
    const Leftovers before;
    ToyFault dies{.action = ToyAction::Die, .point = FaultPoint::BeginTaken, .last_epoch = 99};
    ToyRun run{{.plan = two_and_a_draft(),
                .load = {.more = [] { return false; }},
                .faults = {{toy_segment(2), dies}},
                .poison_limit = 3}};
    const Status ended = run.decode();
    CHECK_MESSAGE(ended.ok(), (ended.ok() ? "" : ended.error().what));
    REQUIRE(run.client().failures().size() == 1);
    const std::string& why = run.client().failures().front().what;
    CHECK_MESSAGE(has(why, "segment-2 was lost while it alone was running, 3 losses in a row"),
                  why);
    CHECK(run.client().tokens() == 0);
    CHECK(run.saboteur().deaths_of(toy_segment(2)) >= 2);
    (void)run.shutdown();
}

TEST_CASE("a request that kills a stage takes none of those along that run beside it") {
    const Leftovers before;
    const std::uint64_t poison = 1002;  // the third text of a client with seed 1
    ToyRunOptions options{
        .plan = two_and_a_draft(),
        .load = {.streams = 5, .answers = 5, .texts = 5, .more = [] { return false; }},
        .faults = {{toy_segment(2),
                    {.action = ToyAction::DieOf, .last_epoch = 99, .poison = poison}}},
        .poison_limit = 3};
    options.supervision.restarts.restarts_max = RestartRules{}.restarts_max;
    ToyRun run{std::move(options)};
    const Status ended = run.decode();
    CHECK_MESSAGE(ended.ok(), (ended.ok() ? "" : ended.error().what));
    for (const std::string& complaint : run.client().complaints()) FAIL_CHECK(complaint);
    REQUIRE(run.client().failures().size() == 1);
    const std::string& why = run.client().failures().front().what;
    CHECK_MESSAGE(has(why, "request 3 is ended: segment-2"), why);
    CHECK(run.client().answered() == 4);
    (void)run.shutdown();
}

// Tests the kill matrix itself: with a safeguard removed in all processes (PlantedBug in
// ipc/base/faults.hpp), a short run with kills must fail.
#include <cstdio>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ipc/base/faults.hpp"
#include "tests/proc/leftovers.hpp"
#include "tests/proc/toy_run.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// Whether a run in a process of its own, which may crash, shows that something is wrong.
bool is_noticed(PlantedBug bug) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        (void)std::freopen("/dev/null", "w", stderr);  // a crash is one way to be noticed
        ToyRun run{{.plan = {.segments = 2, .draft = ToyDraft::Lookup, .layer_micros = 60},
                    .load = {.streams = 8},
                    .sabotage = {.signals = 6,
                                 .recovery_limit = Micros{2'000'000},
                                 .run_limit = Micros{10'000'000}},
                    .bug = bug}};
        const bool well = run.decode().ok() && run.client().complaints().empty() &&
                          run.client().failures().empty() && run.shutdown().ok();
        ::_exit(well ? 0 : 1);
    }
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    while (::waitpid(-1, nullptr, 0) > 0) {  // stages of a conductor that crashed
    }
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace

TEST_CASE("a run with kills notices safeguards that are missing, and nothing else") {
    const Leftovers before;
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    CHECK(!is_noticed(PlantedBug::None));
    // Those that every run with kills must trip over; the others only matter in an order of events
    // that the simulation can bring about.
    for (const PlantedBug bug : {PlantedBug::ReplayForgetsCount, PlantedBug::AttemptNotRaised,
                                 PlantedBug::BackoffForever}) {
        CAPTURE(static_cast<int>(bug));
        CHECK(is_noticed(bug));
    }
}

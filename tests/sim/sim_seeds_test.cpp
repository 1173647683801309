// Reproducibility of simulated runs: one seed always gives the same run, different seeds give
// different runs.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/sim/sim_run.hpp"
#include "tests/sim/sim_scenario.hpp"

namespace paceline::testing {
namespace {

TEST_CASE("the same seed twice gives the same events") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        const SimOutcome once = run_seed(seed);
        const SimOutcome again = run_seed(seed);
        CHECK(once.hash == again.hash);
        CHECK(once.events == again.events);
        CHECK(once.tokens == again.tokens);
    }
}

TEST_CASE("watching a run changes nothing") {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        CAPTURE(seed);
        std::uint64_t lines = 0;
        const SimOutcome silent = run_seed(seed);
        const SimOutcome told = run_seed(seed, [&](const std::string&) { ++lines; });
        CHECK(silent.hash == told.hash);
        CHECK(lines > 0);
    }
}

TEST_CASE("an incident that is not enabled leaves the scenario as it is") {
    const SimKinds none{.poison = false,
                        .drain = false,
                        .crash_loop = false,
                        .suspension = false,
                        .slow_jobs = false};
    std::set<SimIncident> drawn;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        const SimKinds all{};
        const SimScenario hard = draw_scenario(seed, all);
        const SimScenario plain = draw_scenario(seed, none);
        drawn.insert(hard.incident);
        CHECK(plain.incident == SimIncident::None);
        CHECK(hard.clients.size() == plain.clients.size());
        CHECK(hard.edges.size() == plain.edges.size());
        if (hard.incident != SimIncident::None) continue;
        CHECK(hard.describe() == plain.describe());
    }
    CHECK(drawn.size() == 6);
}

TEST_CASE("different seeds are different runs, and many of them meet what they are for") {
    std::set<std::uint64_t> hashes;
    SimOutcome sum;
    for (std::uint64_t seed = 601; seed <= 800; ++seed) {  // preemptions are rare
        const SimOutcome outcome = run_seed(seed);
        hashes.insert(outcome.hash);
        sum.answers += outcome.answers;
        sum.stopped += outcome.stopped;
        sum.failed += outcome.failed;
        sum.replays += outcome.replays;
        sum.preemptions += outcome.preemptions;
        sum.cached_tokens += outcome.cached_tokens;
        sum.restarts += outcome.restarts;
        sum.fenced += outcome.fenced;
    }
    CHECK(hashes.size() == 200);
    CHECK(sum.answers > 200);
    CHECK(sum.stopped > 50);
    CHECK(sum.failed > 0);
    CHECK(sum.replays > 50);
    CHECK(sum.preemptions > 0);
    CHECK(sum.cached_tokens > 500);
    CHECK(sum.restarts > 100);
    CHECK(sum.fenced > 0);
}

}  // namespace
}  // namespace paceline::testing

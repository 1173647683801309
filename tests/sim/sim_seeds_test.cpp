// What the protocol runs rely on: a seed is one run, and different seeds are different runs.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/sim/sim_run.hpp"

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

TEST_CASE("different seeds are different runs, and many of them meet what they are for") {
    std::set<std::uint64_t> hashes;
    SimOutcome sum;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const SimOutcome outcome = run_seed(seed);
        hashes.insert(outcome.hash);
        sum.answers += outcome.answers;
        sum.stopped += outcome.stopped;
        sum.failed += outcome.failed;
        sum.replays += outcome.replays;
        sum.restarts += outcome.restarts;
        sum.fenced += outcome.fenced;
    }
    CHECK(hashes.size() == 200);
    CHECK(sum.answers > 200);
    CHECK(sum.stopped > 50);
    CHECK(sum.failed > 0);
    CHECK(sum.replays > 50);
    CHECK(sum.restarts > 100);
    CHECK(sum.fenced > 0);
}

}  // namespace
}  // namespace paceline::testing

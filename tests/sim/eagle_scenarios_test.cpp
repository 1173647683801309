// Scenarios with an EAGLE draft, whose features are lost, doubled and late: that they meet this,
// and that wrong features cost acceptance alone.
#include <cstdint>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include "ipc/base/faults.hpp"
#include "tests/sim/sim_run.hpp"
#include "tests/sim/sim_scenario.hpp"

namespace paceline::testing {
namespace {

struct EagleRuns {
    int runs = 0;
    SimOutcome sum;
};

/// Runs the seeds up to `last` whose pipeline has an EAGLE draft; none may break an oracle.
EagleRuns run_eagle_seeds(std::uint64_t last) {
    EagleRuns made;
    for (std::uint64_t seed = 1; seed <= last; ++seed) {
        if (draw_scenario(seed).plan.draft != ToyDraft::Eagle) continue;
        CAPTURE(seed);
        const SimOutcome outcome = run_seed(seed);
        CHECK_MESSAGE(!outcome.violation, outcome.violation.value_or(""));
        ++made.runs;
        made.sum.answers += outcome.answers;
        made.sum.replays += outcome.replays;
        made.sum.restarts += outcome.restarts;
        made.sum.features.lost += outcome.features.lost;
        made.sum.features.doubled += outcome.features.doubled;
        made.sum.features.late += outcome.features.late;
        made.sum.features.read += outcome.features.read;
        made.sum.features.wrong += outcome.features.wrong;
    }
    return made;
}

/// Removes a safeguard for the duration of a scope.
struct Planted {
    explicit Planted(PlantedBug bug) { planted_bug.store(bug); }
    Planted(const Planted&) = delete;
    Planted& operator=(const Planted&) = delete;
    ~Planted() { planted_bug.store(PlantedBug::None); }
};

TEST_CASE(
    "an EAGLE draft's features are lost, doubled and late, and the text is plain decoding's") {
    const EagleRuns eagle = run_eagle_seeds(600);
    CHECK(eagle.runs > 20);
    CHECK(eagle.sum.answers > 20);
    CHECK(eagle.sum.restarts > 0);
    CHECK(eagle.sum.replays > 0);
    CHECK(eagle.sum.features.lost > 0);
    CHECK(eagle.sum.features.doubled > 0);
    CHECK(eagle.sum.features.late > 0);
    CHECK(eagle.sum.features.read > eagle.sum.features.wrong);
}

TEST_CASE("features beside the wrong tokens change what an EAGLE draft proposes, and no token") {
    const FeatureCounts right = run_eagle_seeds(300).sum.features;
    const Planted misplaced{PlantedBug::FeaturesMisplaced};
    const FeatureCounts wrong = run_eagle_seeds(300).sum.features;
    REQUIRE(right.read > 0);
    REQUIRE(wrong.read > 0);
    const auto share = [](const FeatureCounts& counts) {
        return static_cast<double>(counts.wrong) / static_cast<double>(counts.read);
    };
    CHECK(share(wrong) > 0.9);
    CHECK(share(right) < share(wrong));
}

}  // namespace
}  // namespace paceline::testing

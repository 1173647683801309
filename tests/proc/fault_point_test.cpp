// The second half of the kill matrix: stages that die at every fault point that
// they pass (ipc/base/faults.hpp), also while they or others come back and while they drain.
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/proc/kills_wanted.hpp"
#include "tests/proc/leftovers.hpp"
#include "tests/proc/toy_run.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr int kFirst = 1;
constexpr int kMiddle = 2;
constexpr int kVerifier = 3;
constexpr int kDraft = 4;
const std::vector<int> kAll{kFirst, kMiddle, kVerifier, kDraft};

/// Three segments and a draft that drafts in jobs, so that every point is passed by a stage.
ToyPlan four_stages() {
    return {.segments = 3, .draft = ToyDraft::Oracle, .layer_micros = 40};
}

struct Place {
    const char* name;
    FaultPoint point;
    std::vector<int> stages;  // that pass it
    std::uint32_t spread;     // of the passing at which it strikes
};
const Place kPlaces[] = {
    {"ring claimed", FaultPoint::RingClaimed, kAll, 20},
    {"mid-payload", FaultPoint::RingMidPayload, kAll, 20},
    {"before publish", FaultPoint::RingWritten, kAll, 20},
    {"after publish", FaultPoint::RingPublished, kAll, 20},
    {"mid-copy", FaultPoint::RingMidCopy, kAll, 20},
    {"tensor filled", FaultPoint::TensorFilled, {kFirst, kMiddle}, 20},
    {"bell armed", FaultPoint::BellArmed, kAll, 20},
    {"job started", FaultPoint::JobStarted, kAll, 20},
    {"job done", FaultPoint::JobDone, kAll, 20},
    {"verdict made", FaultPoint::VerdictMade, {kVerifier}, 20},
    {"begin taken", FaultPoint::BeginTaken, kAll, 6},
};

ToyFault dies_at(FaultPoint point, std::uint32_t first_epoch, std::uint32_t last_epoch) {
    return {.action = ToyAction::Die,
            .point = point,
            .first_epoch = first_epoch,
            .last_epoch = last_epoch};
}

/// How often each stage dies at each place.
std::uint32_t times() {
    return static_cast<std::uint32_t>(std::max(2, kills_wanted() / 100));
}

}  // namespace

TEST_CASE("a stage may die at any fault point, again and again") {
    const Leftovers before;
    int number = 0;
    for (const Place& place : kPlaces) {
        CAPTURE(std::string{place.name});
        ++number;
        std::vector<ToyFaultOf> faults;
        for (const int stage : place.stages) {
            ToyFault fault = dies_at(place.point, 1, times());
            fault.spread = place.spread;
            faults.push_back({toy_segment(stage), fault});
        }
        const int wanted = static_cast<int>(times() * faults.size());
        ToyRun run{{.plan = four_stages(),
                    .load = {.streams = number % 3 == 0 ? 1 : 8, .sampled = number % 2 == 0},
                    .faults = faults,
                    .deaths_wanted = wanted}};
        check_decodes(run);
        for (const int stage : place.stages) {
            CAPTURE(stage);
            CAPTURE(run.news());
            CHECK(run.saboteur().deaths_of(toy_segment(stage)) == static_cast<int>(times()));
        }
    }
}

TEST_CASE("a stage may die while it comes back itself") {
    const Leftovers before;
    for (const int stage : kAll) {
        CAPTURE(stage);
        ToyRun run{{.plan = four_stages(),
                    .load = {.streams = 8, .sampled = stage % 2 == 0},
                    .sabotage = {.signals = 1, .only = toy_segment(stage)},
                    .faults = {{toy_segment(stage), dies_at(FaultPoint::Wired, 2, 3)}}}};
        check_decodes(run);
        CHECK(run.saboteur().deaths_of(toy_segment(stage)) == 3);
    }
}

TEST_CASE("a stage may die while it is given channels to another that comes back") {
    const Leftovers before;
    for (const int stage : kAll) {
        CAPTURE(stage);
        const StageId neighbour = toy_segment(stage % 4 + 1);
        ToyRun run{{.plan = four_stages(),
                    .load = {.streams = 8, .sampled = stage % 2 == 0},
                    .sabotage = {.signals = 2, .only = neighbour},
                    .faults = {{toy_segment(stage), dies_at(FaultPoint::PeerWired, 1, 2)}}}};
        check_decodes(run);
        CHECK(run.saboteur().deaths_of(toy_segment(stage)) == 2);
        CHECK(run.saboteur().deaths_of(neighbour) == 2);
    }
}

TEST_CASE("a stage that dies while it drains is named, and nothing is left behind") {
    const Leftovers before;
    for (const int stage : kAll) {
        CAPTURE(stage);
        ToyRun run{{.plan = four_stages(),
                    .load = {.streams = 8},
                    .faults = {{toy_segment(stage), dies_at(FaultPoint::Draining, 1, 1)}}}};
        REQUIRE(run.decode().ok());
        CHECK(run.client().answered() == 8);
        const Status closed = run.shutdown();
        REQUIRE(!closed.ok());
        const std::string name = stage == kDraft ? "draft" : "segment-" + std::to_string(stage);
        CHECK_MESSAGE(closed.error().what.find(name) != std::string::npos, closed.error().what);
    }
}

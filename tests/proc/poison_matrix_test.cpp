// The kill matrix with a poison request (a segment dies at each of its Begins) beside seven others:
// the others' tokens must equal those of a run without kills, and the error of the poison request
// must name it.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/proc/leftovers.hpp"
#include "tests/proc/toy_run.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr int kRequests = 8;
constexpr std::uint64_t kPoisonText = 2;  // the client's third text, so request 3

struct Cell {
    int segments = 2;
    int deadly = 1;  // segment
    bool sampled = false;
    bool draft_dies = false;  // killed now and then as well
};

std::vector<Cell> cells() {
    std::vector<Cell> all;
    for (int segments = 1; segments <= 3; ++segments) {
        for (int deadly = 1; deadly <= segments; ++deadly)
            all.push_back({segments, deadly, all.size() % 2 == 1, all.size() % 3 != 0});
    }
    return all;
}

ToyRunOptions options_of(const Cell& cell, std::uint64_t seed) {
    const std::uint64_t client = seed + 1;
    ToyRunOptions options{.plan = {.segments = cell.segments,
                                   .draft = ToyDraft::Oracle,
                                   .layer_micros = 60,
                                   .seed = seed},
                          .load = {.streams = kRequests,
                                   .answers = kRequests,
                                   .sampled = cell.sampled,
                                   .seed = client,
                                   .texts = kRequests,
                                   .more = [] { return false; }},
                          .faults = {{toy_segment(cell.deadly),
                                      {.action = ToyAction::DieOf,
                                       .last_epoch = 99,
                                       .poison = 1'000 * client + kPoisonText}}},
                          .poison_limit = 3};
    if (cell.draft_dies)
        options.sabotage = {.signals = 3, .seed = client, .only = toy_draft(options.plan)};
    return options;
}

}  // namespace

TEST_CASE("beside a request that kills its stage the others are answered as without it") {
    const Leftovers before;
    for (std::uint64_t seed = 0; seed < cells().size(); ++seed) {
        const Cell cell = cells()[seed];
        CAPTURE(cell.segments);
        CAPTURE(cell.deadly);
        ToyRunOptions options = options_of(cell, seed);
        options.supervision
            .restarts = {};  // poison must not use up what the program allows a stage
        ToyRun run{std::move(options)};
        const Status ended = run.decode();
        CHECK_MESSAGE(ended.ok(), (ended.ok() ? "" : ended.error().what) << "\n" << run.news());
        if (!ended.ok()) continue;
        for (const std::string& complaint : run.client().complaints()) FAIL_CHECK(complaint);
        CHECK(run.client().answered() == kRequests - 1);
        REQUIRE(run.client().failures().size() == 1);
        const std::string& why = run.client().failures().front().what;
        CHECK_MESSAGE(why.find("request 3 is ended") == 0, why);
        CHECK_MESSAGE(why.find("segment-" + std::to_string(cell.deadly)) != std::string::npos, why);
        CHECK(run.saboteur().deaths_of(toy_segment(cell.deadly)) <= 4);
        const Status closed = run.shutdown();
        // The saboteur's last signal may reach the draft when all requests have ended.
        const bool only_sabotage = !closed.ok() && cell.draft_dies &&
                                   closed.error().what.find("stage 'draft'") == 0 &&
                                   closed.error().what.find("signal 9") != std::string::npos;
        CHECK_MESSAGE((closed.ok() || only_sabotage), (closed.ok() ? "" : closed.error().what)
                                                          << "\n"
                                                          << run.news());
    }
}

// The kill matrix: SIGKILL to each stage at any time, alone, in pairs, during a recovery, with 1, 8
// and 32 streams, greedy and sampled. Every stream's tokens must equal those of a run without
// kills.
//
//     proc_kill_matrix                  200 kills and more
//     proc_kill_matrix --kills 5000
#include <algorithm>
#include <cstdio>
#include <vector>

#include <doctest/doctest.h>

#include "tests/proc/kills_wanted.hpp"
#include "tests/proc/leftovers.hpp"
#include "tests/proc/toy_run.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// The shapes that the matrix goes through in turn.
ToyPlan shape(int number) {
    ToyPlan plan;
    plan.exits = number / 2 % 2 == 1;
    plan.segments = 1 + number % 3;
    plan.draft =
        number % 4 == 3 ? ToyDraft::None : (number % 2 == 0 ? ToyDraft::Oracle : ToyDraft::Lookup);
    plan.housing = number % 5 == 4 ? ToyHousing::DraftWithFirst : ToyHousing::Apart;
    plan.layer_micros = 60;
    plan.seed = static_cast<std::uint64_t>(number);
    return plan;
}

void print_recoveries(std::vector<Micros> recoveries, int kills, std::uint64_t tokens) {
    if (recoveries.empty()) return;
    std::sort(recoveries.begin(), recoveries.end());
    const auto at = [&recoveries](double share) {
        const auto index =
            static_cast<std::size_t>(share * static_cast<double>(recoveries.size() - 1));
        return static_cast<double>(recoveries[index].count()) / 1000.0;
    };
    std::printf(
        "%d kills, %llu tokens checked; from kill to next token, %zu times: "
        "p50 %.1f ms, p99 %.1f ms, max %.1f ms\n",
        kills, static_cast<unsigned long long>(tokens), recoveries.size(), at(0.5), at(0.99),
        at(1.0));
}

}  // namespace

TEST_CASE("killed stages come back and no token is lost, repeated or changed") {
    const Leftovers before;
    constexpr Strike kStrikes[] = {Strike::Kill, Strike::KillTwo, Strike::KillInRecovery};
    constexpr int kStreams[] = {1, 8, 32};
    constexpr int kCells = 18;  // strikes x streams x {greedy, sampled}
    const int wanted = kills_wanted();
    std::vector<Micros> recoveries;
    int kills = 0;
    std::uint64_t tokens = 0;
    for (int number = 0; number < kCells || kills < wanted; ++number) {
        const bool sampled = number % 2 == 1;
        const Strike strike = kStrikes[number / 2 % 3];
        const int streams = kStreams[number / 6 % 3];
        CAPTURE(number);
        CAPTURE(streams);
        ToyRun run{{.plan = shape(number),
                    .load = {.streams = streams,
                             .sampled = sampled,
                             .seed = static_cast<std::uint64_t>(number % kCells) + 1},
                    .sabotage = {.strike = strike,
                                 .signals = std::clamp(wanted / kCells, 1, 50) + 1,
                                 .seed = static_cast<std::uint64_t>(number) + 1}}};
        check_decodes(run);
        kills += run.saboteur().signals();
        tokens += run.client().tokens();
        const auto& measured = run.saboteur().recoveries();
        if (strike == Strike::Kill) {
            recoveries.insert(recoveries.end(), measured.begin(), measured.end());
        }
    }
    CHECK(kills >= wanted);
    print_recoveries(recoveries, kills, tokens);
}

// sim_planted: proof that the simulator would notice. Each safeguard of the recovery protocol and
// of decoding across a recovery is taken out in turn (ipc/base/faults.hpp), and some seed must
// break an oracle because of it, or end the process.
//
//     sim_planted                     all bugs, up to 10,000 seeds each; harmless ones 300
//     sim_planted --seeds N           up to N seeds each
//     sim_planted --bug N             one of them, by its place in the list
//
// A bug may end the process (PACE_CHECK), so each is hunted in a child of its own. One that is
// listed as harmless must not be found, so all of its seeds run: it gets fewer of them.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/base/faults.hpp"
#include "tests/sim/sim_run.hpp"

namespace {

using paceline::PlantedBug;

struct Bug {
    PlantedBug bug;
    const char* name;
    /// Why no run can show it: another safeguard stands after it. nullptr: it must be found.
    const char* harmless;
};

constexpr std::array kBugs{
    Bug{PlantedBug::EpochNotRaised, "EpochNotRaised", nullptr},
    Bug{PlantedBug::BeginBeforeRewired, "BeginBeforeRewired", nullptr},
    Bug{PlantedBug::LostPeerStaysWired, "LostPeerStaysWired", nullptr},
    Bug{PlantedBug::StaleReadyCounts, "StaleReadyCounts", nullptr},
    Bug{PlantedBug::BackoffForever, "BackoffForever", nullptr},
    Bug{PlantedBug::CommitIgnoresAttempt, "CommitIgnoresAttempt", nullptr},
    Bug{PlantedBug::CommitIgnoresPosition, "CommitIgnoresPosition",
        "harmless: within one attempt no verdict comes twice, and other attempts are refused"},
    Bug{PlantedBug::AttemptNotRaised, "AttemptNotRaised", nullptr},
    Bug{PlantedBug::ReplayForgetsCommitted, "ReplayForgetsCommitted", nullptr},
    Bug{PlantedBug::ReplayForgetsCount, "ReplayForgetsCount", nullptr},
    Bug{PlantedBug::FilterIgnoresAttempt, "FilterIgnoresAttempt", nullptr},
    Bug{PlantedBug::EpochUnchecked, "EpochUnchecked",
        "harmless: a lost peer's channels are closed, and no stage claims another epoch than its "
        "own"},
    Bug{PlantedBug::FilterDropsEarly, "FilterDropsEarly", nullptr},
    Bug{PlantedBug::OldScoresKept, "OldScoresKept", nullptr},
    Bug{PlantedBug::EndUntold, "EndUntold", nullptr},
    Bug{PlantedBug::StopIgnoresAttempt, "StopIgnoresAttempt", nullptr},
    Bug{PlantedBug::SlotsLeakOnReplay, "SlotsLeakOnReplay", nullptr},
    Bug{PlantedBug::TensorLeakOnStale, "TensorLeakOnStale", nullptr},
    Bug{PlantedBug::OutboxForgotten, "OutboxForgotten", nullptr},
    Bug{PlantedBug::LostKeysTrusted, "LostKeysTrusted", nullptr},
    Bug{PlantedBug::PrefixUnproven, "PrefixUnproven", nullptr},
    Bug{PlantedBug::PrefixCountForgotten, "PrefixCountForgotten", nullptr},
    Bug{PlantedBug::SaltIgnored, "SaltIgnored", nullptr},
    Bug{PlantedBug::UnrunStatesKept, "UnrunStatesKept", nullptr},
    Bug{PlantedBug::PreemptionIsLoss, "PreemptionIsLoss", nullptr},
    Bug{PlantedBug::PoisonForgiven, "PoisonForgiven", nullptr},
    Bug{PlantedBug::QuarantinedTogether, "QuarantinedTogether", nullptr},
    Bug{PlantedBug::PoisonSentToDraft, "PoisonSentToDraft", nullptr},
    Bug{PlantedBug::LoadCountsAsWork, "LoadCountsAsWork", nullptr},
    Bug{PlantedBug::RowTimeForgotten, "RowTimeForgotten", nullptr},
    Bug{PlantedBug::JobsNotInherited, "JobsNotInherited", nullptr},
    Bug{PlantedBug::PauseCountsAsHang, "PauseCountsAsHang", nullptr},
    Bug{PlantedBug::PauseCountsAsLoading, "PauseCountsAsLoading", nullptr},
    Bug{PlantedBug::PauseCountsAsWaiting, "PauseCountsAsWaiting", nullptr},
    Bug{PlantedBug::DrainTakesOrders, "DrainTakesOrders", nullptr},
    Bug{PlantedBug::DrainEndsNothing, "DrainEndsNothing", nullptr},
    Bug{PlantedBug::VerifyStartsLate, "VerifyStartsLate", nullptr},
    Bug{PlantedBug::DraftPathChanges, "DraftPathChanges",
        "harmless: a set changes only after a verdict, and no batch leaves while a chain grows"},
    Bug{PlantedBug::AheadSlotsLeak, "AheadSlotsLeak", nullptr},
    Bug{PlantedBug::MatcherNotRebuilt, "MatcherNotRebuilt", nullptr},
    Bug{PlantedBug::MaskBeforeBias, "MaskBeforeBias", nullptr},
    Bug{PlantedBug::GrammarNotResent, "GrammarNotResent", nullptr},
    Bug{PlantedBug::ForcedIsAccepted, "ForcedIsAccepted", nullptr},
    Bug{PlantedBug::FeatureSlotKept, "FeatureSlotKept", nullptr},
    Bug{PlantedBug::FeaturesMisplaced, "FeaturesMisplaced",
        "harmless: features decide what is proposed, and no proposal decides what is accepted"},
};

constexpr std::uint64_t kSeeds = 10'000;
constexpr std::uint64_t kHarmlessSeeds = 300;  // most bugs are found within 100

struct Found {
    bool found = false;
    std::string how;
};

/// In the child: one line about what was found into `out`.
[[noreturn]] void hunt_in_child(const Bug& bug, std::uint64_t seeds, int out) {
    using namespace paceline::testing;
    paceline::planted_bug.store(bug.bug);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        // First, so that it is known if this seed ends the process.
        dprintf(out, "seed %llu: the process ended\n", static_cast<unsigned long long>(seed));
        const SimOutcome outcome = run_seed(seed);
        if (!outcome.violation) continue;
        dprintf(out, "seed %llu: %s\n", static_cast<unsigned long long>(seed),
                outcome.violation->c_str());
        std::_Exit(1);
    }
    std::_Exit(0);
}

Found hunt(const Bug& bug, std::uint64_t seeds) {
    int ends[2];
    if (::pipe(ends) != 0) return {false, "no pipe"};
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(ends[0]);
        // What PACE_CHECK prints is expected here.
        if (std::freopen("/dev/null", "w", stderr) == nullptr) std::_Exit(3);
        hunt_in_child(bug, seeds, ends[1]);
    }
    ::close(ends[1]);
    std::string said;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
        said.append(buffer, static_cast<std::size_t>(got));
        // Only the last line counts.
        const std::size_t end = said.rfind('\n');
        const std::size_t before =
            end == 0 || end == std::string::npos ? std::string::npos : said.rfind('\n', end - 1);
        if (before != std::string::npos) said.erase(0, before + 1);
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!said.empty() && said.back() == '\n') said.pop_back();
    const bool nothing = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return {!nothing, nothing ? "" : said};
}

}  // namespace

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 1U << 16U);
    std::optional<std::uint64_t> seeds;
    std::size_t only = kBugs.size();
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::strcmp(argv[i], "--seeds") == 0) {
            seeds = value;
        } else if (std::strcmp(argv[i], "--bug") == 0) {
            only = value;
        } else {
            std::fprintf(stderr, "usage: sim_planted [--seeds N] [--bug N]\n");
            return 2;
        }
    }
    int found = 0;
    int wrong = 0;  // not found, or harmless and found
    for (std::size_t i = 0; i < kBugs.size(); ++i) {
        if (only != kBugs.size() && only != i) continue;
        const Bug& bug = kBugs[i];
        const bool harmless = bug.harmless != nullptr;
        const Found result = hunt(bug, seeds.value_or(harmless ? kHarmlessSeeds : kSeeds));
        if (result.found) ++found;
        if (result.found == harmless) ++wrong;
        const std::string how = result.found ? result.how : "NOT FOUND";
        std::printf("%-24s %s\n", bug.name,
                    !harmless       ? how.c_str()
                    : !result.found ? bug.harmless
                                    : ("FOUND, but listed as harmless: " + how).c_str());
    }
    std::printf("%d planted bugs found, %d not as listed\n", found, wrong);
    return wrong == 0 ? 0 : 1;
}

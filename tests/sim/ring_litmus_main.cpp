// The litmus simulator of ring, tensor pool and doorbell.
//
//     ring_litmus                  20,000 seeds, and every 16th again for its hash
//     ring_litmus --seeds N        more of them; --first S: from seed S on
//     ring_litmus --seed S         one, with what it does
//     ring_litmus --bugs           takes out one safeguard after the other: each must be noticed
//     ring_litmus --bug NAME       only that one; with --seed S: in that seed
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "tests/sim/ring_litmus_world.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr std::uint64_t kSeeds = 20'000;
constexpr std::uint64_t kBugSeeds = 10'000;

struct NamedBug {
    std::string_view name;
    PlantedBug bug;
};
constexpr std::array kBugs = {
    NamedBug{"PublishBeforePayload", PlantedBug::PublishBeforePayload},
    NamedBug{"FreeBeforeCopy", PlantedBug::FreeBeforeCopy},
    NamedBug{"RingFullOffByOne", PlantedBug::RingFullOffByOne},
    NamedBug{"RingEpochIgnored", PlantedBug::RingEpochIgnored},
    NamedBug{"RingReserveIgnored", PlantedBug::RingReserveIgnored},
    NamedBug{"RoomRequestForgotten", PlantedBug::RoomRequestForgotten},
    NamedBug{"RoomRequestTaken", PlantedBug::RoomRequestTaken},
    NamedBug{"NoRecheckBeforeSleep", PlantedBug::NoRecheckBeforeSleep},
    NamedBug{"PoolReleaseIgnored", PlantedBug::PoolReleaseIgnored},
    NamedBug{"PoolGenerationIgnored", PlantedBug::PoolGenerationIgnored},
};

struct Options {
    std::uint64_t first = 1;
    std::uint64_t seeds = kSeeds;
    std::optional<std::uint64_t> only;
    std::optional<NamedBug> bug;
    bool all_bugs = false;
};

void report(std::uint64_t seed, const Verdict& verdict) {
    std::printf("seed %llu: %s\n  %s\n  %llu messages, %llu sleeps, %llu deaths, hash %016llx\n",
                static_cast<unsigned long long>(seed),
                verdict.failure.empty() ? "good" : verdict.failure.c_str(),
                describe_litmus(seed).c_str(), static_cast<unsigned long long>(verdict.messages),
                static_cast<unsigned long long>(verdict.sleeps),
                static_cast<unsigned long long>(verdict.deaths),
                static_cast<unsigned long long>(verdict.hash));
}

/// Whether all seeds are good and the same seed does the same twice.
bool run_seeds(const Options& options) {
    Verdict sum;
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t seed = options.first; seed < options.first + options.seeds; ++seed) {
        const Verdict verdict = run_litmus(seed);
        if (!verdict.failure.empty()) {
            report(seed, verdict);
            return false;
        }
        if (seed % 16 == 0 && run_litmus(seed).hash != verdict.hash) {
            std::printf("seed %llu did not do the same twice\n",
                        static_cast<unsigned long long>(seed));
            return false;
        }
        sum.messages += verdict.messages;
        sum.stale += verdict.stale;
        sum.sleeps += verdict.sleeps;
        sum.deaths += verdict.deaths;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf(
        "%llu seeds are good: %llu messages, %llu frames of old epochs dropped, %llu sleeps, "
        "%llu deaths, %.1f s\n",
        static_cast<unsigned long long>(options.seeds),
        static_cast<unsigned long long>(sum.messages), static_cast<unsigned long long>(sum.stale),
        static_cast<unsigned long long>(sum.sleeps), static_cast<unsigned long long>(sum.deaths),
        took.count());
    // A world in which nothing of this happens would prove nothing.
    return sum.messages > options.seeds &&
           (options.seeds < 100 || (sum.stale > 0 && sum.deaths > 0));
}

bool find(const NamedBug& bug) {
    for (std::uint64_t seed = 1; seed <= kBugSeeds; ++seed) {
        const Verdict verdict = run_litmus(seed, bug.bug);
        if (verdict.failure.empty()) continue;
        std::printf("%-22.*s seed %5llu: %s\n", static_cast<int>(bug.name.size()), bug.name.data(),
                    static_cast<unsigned long long>(seed), verdict.failure.c_str());
        return true;
    }
    std::printf("%.*s was not noticed in %llu seeds\n", static_cast<int>(bug.name.size()),
                bug.name.data(), static_cast<unsigned long long>(kBugSeeds));
    return false;
}

std::optional<Options> parse(int count, char** arguments) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const std::string_view name = arguments[i];
        if (name == "--bugs") {
            options.all_bugs = true;
            continue;
        }
        if (++i == count) return std::nullopt;
        const std::uint64_t number = std::strtoull(arguments[i], nullptr, 10);
        if (name == "--seeds") {
            options.seeds = number;
        } else if (name == "--first") {
            options.first = number;
        } else if (name == "--seed") {
            options.only = number;
        } else if (name == "--bug") {
            const std::string_view wanted = arguments[i];
            const auto* const bug = std::find_if(
                kBugs.begin(), kBugs.end(), [&](const auto& one) { return one.name == wanted; });
            if (bug == kBugs.end()) return std::nullopt;
            options.bug = *bug;
        } else {
            return std::nullopt;
        }
    }
    return options;
}

}  // namespace

int main(int count, char** arguments) {
    const std::optional<Options> options = parse(count, arguments);
    if (!options) {
        std::fprintf(
            stderr,
            "usage: ring_litmus [--seeds N] [--first S] [--seed S] [--bugs] [--bug NAME]\n");
        return 2;
    }
    if (options->only) {
        const PlantedBug bug = options->bug ? options->bug->bug : PlantedBug::None;
        const Verdict verdict = run_litmus(*options->only, bug);
        report(*options->only, verdict);
        return verdict.failure.empty() ? 0 : 1;
    }
    if (options->bug) return find(*options->bug) ? 0 : 1;
    if (!options->all_bugs) return run_seeds(*options) ? 0 : 1;
    bool all = true;
    for (const NamedBug& bug : kBugs) all = find(bug) && all;
    return all ? 0 : 1;
}

#include "model/kernels/cpu/thread_team.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

namespace paceline {
namespace {

TEST_CASE("every thread of a team runs the work once and barriers keep steps apart") {
    for (const int threads : {1, 2, 5}) {
        ThreadTeam team{threads, {}, /*usable_cores=*/1};
        std::vector<int> steps(static_cast<std::size_t>(threads));
        bool ordered = true;
        for (int round = 0; round < 200; ++round) {
            std::fill(steps.begin(), steps.end(), 0);
            auto work = [&](int thread) {
                steps[static_cast<std::size_t>(thread)] = 1;
                team.barrier();
                const bool all = std::all_of(steps.begin(), steps.begin() + team.size(),
                                             [](int s) { return s >= 1; });
                team.barrier();
                steps[static_cast<std::size_t>(thread)] = all ? 2 : -1;
            };
            team.run(work);
            // Those that take part, on a busy machine not all.
            for (int thread = 0; thread < threads; ++thread)
                ordered = ordered &&
                          steps[static_cast<std::size_t>(thread)] == (thread < team.size() ? 2 : 0);
        }
        CHECK(ordered);
    }
}

TEST_CASE("threads that slept between two runs come back, on shared cores and on own ones") {
    for (const int usable_cores : {0, 3}) {
        ThreadTeam team{3, {}, usable_cores};
        std::vector<int> runs(3);
        std::vector<int> expected(3);
        auto work = [&](int thread) { ++runs[static_cast<std::size_t>(thread)]; };
        for (int round = 0; round < 30; ++round) {
            // From not at all to longer than any of them spins or yields.
            std::this_thread::sleep_for(std::chrono::microseconds{round * 150});
            team.run(work);
            for (int thread = 0; thread < team.size(); ++thread)
                ++expected[static_cast<std::size_t>(thread)];
        }
        CHECK(runs == expected);
        CHECK(runs[0] == 30);
    }
}

TEST_CASE("a team whose cores are busy shrinks, computes the same, and grows again") {
    cpu_set_t before;
    CPU_ZERO(&before);
    REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
    int core = 0;
    while (!CPU_ISSET(static_cast<unsigned>(core), &before)) ++core;
    // Three threads on one core are kept waiting whatever else this machine does.
    ThreadTeam team{3, {core, core, core}, 3};
    std::atomic<long> sum{0};
    const auto run_for = [&](std::chrono::milliseconds time, auto until) {
        const auto end = std::chrono::steady_clock::now() + time;
        long runs = 0;
        while (std::chrono::steady_clock::now() < end && !until()) {
            auto work = [&](int thread) {
                const int threads = team.size();
                volatile double burnt = 1.0;
                for (int i = 0; i < 60'000 / threads; ++i) burnt = burnt * 1.0000001;
                team.barrier();
                for (int part = thread; part < 12; part += threads) sum += part;
            };
            team.run(work);
            ++runs;
        }
        return runs;
    };
    long runs = run_for(std::chrono::seconds{20}, [&] { return team.size() == 1; });
    CHECK(team.size() == 1);
    // Whoever does not take part is woken for a trial, and sleeps again.
    bool tried = false;
    runs += run_for(std::chrono::seconds{20}, [&] { return tried = tried || team.size() > 1; });
    CHECK(tried);
    CHECK(sum == 66 * runs);
}

TEST_CASE("a team gives its maker's affinity back") {
    cpu_set_t before;
    CPU_ZERO(&before);
    REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
    int core = 0;
    while (!CPU_ISSET(static_cast<unsigned>(core), &before)) ++core;
    {
        ThreadTeam team{1, {core}, 1};
        cpu_set_t inside;
        CPU_ZERO(&inside);
        REQUIRE(sched_getaffinity(0, sizeof(inside), &inside) == 0);
        CHECK(CPU_COUNT(&inside) == 1);
    }
    cpu_set_t after;
    CPU_ZERO(&after);
    REQUIRE(sched_getaffinity(0, sizeof(after), &after) == 0);
    CHECK(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace paceline

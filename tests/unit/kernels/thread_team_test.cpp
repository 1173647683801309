#include "model/kernels/cpu/thread_team.hpp"

#include <algorithm>
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
                const bool all =
                    std::all_of(steps.begin(), steps.end(), [](int s) { return s >= 1; });
                team.barrier();
                steps[static_cast<std::size_t>(thread)] = all ? 2 : -1;
            };
            team.run(work);
            ordered =
                ordered && std::all_of(steps.begin(), steps.end(), [](int s) { return s == 2; });
        }
        CHECK(ordered);
    }
}

TEST_CASE("threads that slept between two runs come back, on shared cores and on own ones") {
    for (const int usable_cores : {0, 3}) {
        ThreadTeam team{3, {}, usable_cores};
        std::vector<int> runs(3);
        auto work = [&](int thread) { ++runs[static_cast<std::size_t>(thread)]; };
        for (int round = 0; round < 30; ++round) {
            // From not at all to longer than any of them spins or yields.
            std::this_thread::sleep_for(std::chrono::microseconds{round * 150});
            team.run(work);
        }
        CHECK(runs == std::vector<int>{30, 30, 30});
    }
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

// Killing the conductor: no stage outlives it.
#include <chrono>
#include <cstdio>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/proc/leftovers.hpp"
#include "tests/proc/toy_run.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same
using namespace std::chrono_literals;

namespace {

constexpr int kStages = 4;

/// The conductor's process: decodes for ever; its stages' numbers go into the pipe.
[[noreturn]] void conduct(int pipe) {
    ToyRun run{{.plan = {.segments = 3, .draft = ToyDraft::Lookup, .layer_micros = 60},
                .load = {.streams = 8, .more = [] { return true; }},
                .on_started = [pipe](const std::vector<pid_t>& pids) {
                    const auto bytes = sizeof(pid_t) * pids.size();
                    if (::write(pipe, pids.data(), bytes) < 0) ::_exit(3);
                }}};
    (void)run.decode();
    ::_exit(4);
}

}  // namespace

TEST_CASE("when the conductor is killed all stages end, even a stopped one") {
    const Leftovers before;
    // Orphans come to this process, which sees and reaps them.
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    for (const bool stops_one : {false, true}) {
        CAPTURE(stops_one);
        int ends[2] = {-1, -1};
        REQUIRE(::pipe(ends) == 0);
        const pid_t conductor = ::fork();
        REQUIRE(conductor >= 0);
        if (conductor == 0) conduct(ends[1]);
        std::vector<pid_t> stages(kStages);
        const auto bytes = static_cast<ssize_t>(sizeof(pid_t) * stages.size());
        REQUIRE(::read(ends[0], stages.data(), static_cast<std::size_t>(bytes)) == bytes);
        ::close(ends[0]);
        ::close(ends[1]);
        std::this_thread::sleep_for(100ms);  // in the middle of its work
        if (stops_one) ::kill(stages[1], SIGSTOP);
        const auto killed = std::chrono::steady_clock::now();
        ::kill(conductor, SIGKILL);
        int reaped = 0;
        while (::waitpid(-1, nullptr, 0) > 0) ++reaped;  // until the last one has ended
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - killed;
        std::printf("conductor killed: all stages gone after %.1f ms\n", took.count());
        CHECK(reaped == 1 + kStages);
        for (const pid_t stage : stages) CHECK(::kill(stage, 0) != 0);
    }
}

#include "tests/soak_run/soak_watchdog.hpp"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

#include "launch/cli/top/top_scan.hpp"
#include "runtime/observe/stage_telemetry.hpp"

namespace paceline::testing {
namespace {

constexpr auto kLook = std::chrono::milliseconds{100};
/// For loading, the last answers and the end of the stages.
constexpr auto kAroundTheRun = std::chrono::seconds{120};

std::int64_t number(SoakClock::time_point time) {
    return time.time_since_epoch().count();
}

double seconds(SoakClock::duration time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

SoakWatchdog::SoakWatchdog(const SoakPlan& plan)
    : limit_{plan.hang_limit},
      end_{SoakClock::now() + plan.length + plan.hang_limit + kAroundTheRun},
      thread_{[this] { watch(); }} {}

SoakWatchdog::~SoakWatchdog() {
    over_ = true;
    thread_.join();
}

void SoakWatchdog::tick(SoakClock::time_point now, SoakClock::time_point last_progress) {
    const std::int64_t before = turn_.exchange(number(now));
    if (before != 0)
        longest_turn_ = std::max(longest_turn_, SoakClock::duration{number(now) - before});
    longest_wait_ = std::max(longest_wait_, now - last_progress);
    progress_ = number(last_progress);
}

void SoakWatchdog::rest() {
    turn_ = 0;
    progress_ = 0;
}

void SoakWatchdog::watch() const {
    while (!over_) {
        std::this_thread::sleep_for(kLook);
        const auto now = SoakClock::now();
        if (now > end_) give_up("the run has not come to its end", now - end_);
        const std::int64_t turn = turn_;
        const std::int64_t progress = progress_;
        if (turn == 0) continue;
        const SoakClock::duration since_turn{number(now) - turn};
        if (since_turn > limit_) give_up("the conductor's loop is stuck", since_turn);
        const SoakClock::duration since{number(now) - progress};
        if (progress != 0 && since > limit_) give_up("no token, beginning or end came", since);
    }
}

void SoakWatchdog::give_up(const char* what, SoakClock::duration lasted) const {
    std::fflush(stdout);
    std::fprintf(stderr, "soak FAILED: hang: %s for %.0f s\n", what, seconds(lasted));
    const auto now = SoakClock::now().time_since_epoch();
    for (const PipelineSample& pipeline : scan_pipelines(::getpid())) {
        for (const StageSample& stage : pipeline.stages) {
            const TelemetrySnapshot& seen = stage.telemetry;
            std::fprintf(stderr, "  %-14s epoch %u, %s for %.1f s%s\n", seen.name.c_str(),
                         seen.epoch.value, name_of(seen.activity), seconds(now - seen.since),
                         stage.process == ProcessState::Alive     ? ""
                         : stage.process == ProcessState::Stopped ? ", stopped"
                                                                  : ", gone");
        }
    }
    ::_exit(1);
}

}  // namespace paceline::testing

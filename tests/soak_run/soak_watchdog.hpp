// SoakWatchdog: ends the process when the pipeline hangs: a thread that watches the progress of
// the session's thread.
//
//   no turn      tick() was not called for the limit while answers were open: the loop is stuck
//   no progress  no token, beginning or end for the limit while answers were open
//   no end       the run takes longer than it should have in all
//
// It says which, what each stage was doing by its telemetry block, and calls _exit(1): the stages
// die with their parent, stopped ones too. tick() and rest() come from the session's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "tests/soak_run/soak_plan.hpp"

namespace paceline::testing {

class SoakWatchdog {
public:
    explicit SoakWatchdog(const SoakPlan& plan);
    SoakWatchdog(const SoakWatchdog&) = delete;
    SoakWatchdog& operator=(const SoakWatchdog&) = delete;
    ~SoakWatchdog();

    void tick(SoakClock::time_point now, SoakClock::time_point last_progress);
    /// No answer is open until the next tick().
    void rest();
    /// Of the session's loop, between two of its turns.
    [[nodiscard]] SoakClock::duration longest_turn() const { return longest_turn_; }
    /// Between two signs of progress.
    [[nodiscard]] SoakClock::duration longest_wait() const { return longest_wait_; }

private:
    void watch() const;
    [[noreturn]] void give_up(const char* what, SoakClock::duration lasted) const;

    SoakClock::duration limit_;
    SoakClock::time_point end_;
    // The two figures: the session's thread alone.
    SoakClock::duration longest_turn_{0};
    SoakClock::duration longest_wait_{0};
    std::atomic<std::int64_t> turn_{0};      // when the loop turned; 0: at rest
    std::atomic<std::int64_t> progress_{0};  // when something came
    std::atomic<bool> over_{false};
    std::thread thread_;
};

}  // namespace paceline::testing

// SoakFaults: the faults that a soak injects into its stages: SIGKILL, two at once, SIGSTOP
// for 50 ms to 6.4 s (longer than the supervisor's grace time, so some are replaced meanwhile).
//
// Which stage comes next is dealt from a shuffled deck, so that no stage is hit more often than the
// restart intensity of the default configuration allows. In each of as many eras as there are
// processes one process is spared, so that it lives long enough for its memory to be watched.
// A stopped stage is continued by a thread of its own, through a process descriptor, whatever the
// conductor does; the destructor continues all. tick() comes from the session's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ipc/transport/owned_fd.hpp"
#include "launch/session/pipeline_session.hpp"
#include "tests/soak_run/soak_plan.hpp"

namespace paceline::testing {

class SoakFaults {
public:
    SoakFaults(const SoakPlan& plan, const PipelineSession& session);
    SoakFaults(const SoakFaults&) = delete;
    SoakFaults& operator=(const SoakFaults&) = delete;
    ~SoakFaults();

    /// Does what is due.
    void tick(SoakClock::time_point now);
    /// Nothing happens any more, and stopped stages go on.
    void end();

    [[nodiscard]] int kills() const { return kills_; }
    [[nodiscard]] int pauses() const { return pauses_; }

private:
    [[nodiscard]] pid_t deal(SoakClock::time_point now);
    void kill_one(SoakClock::time_point now);
    void pause_one(SoakClock::time_point now);
    void continue_due();

    SoakPlan plan_;
    const PipelineSession& session_;
    std::mt19937_64 random_;
    SoakClock::time_point begun_ = SoakClock::now();
    SoakClock::time_point next_;
    std::vector<std::string> deck_;  // names of processes, the next one last
    int kills_ = 0;
    int pauses_ = 0;

    std::mutex lock_;  // guards what is below
    std::multimap<SoakClock::time_point, OwnedFd> stopped_;
    std::atomic<bool> over_{false};
    std::thread helper_;
};

}  // namespace paceline::testing

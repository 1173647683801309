// StoppedStages: stages that are stopped and continued while a pipeline runs: some for a part of
// the time, some once for a while. SignalledProcess: a process that may be sent signals.
//
// A helper thread stops and continues, if there is anything to do for it. The destructor continues
// all that are stopped.
// Threads: the session's, beside the helper.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/transport/owned_fd.hpp"
#include "launch/session/pipeline_session.hpp"

namespace paceline {

/// A stage that is stopped for a part of the time.
struct SlowStage {
    std::string name;  // of its process
    int percent = 50;  // of the time that it is stopped, 1 to 95
};

/// Addressed through a process descriptor where the kernel allows it, so that a signal cannot reach
/// another process, also when this one has long ended.
class SignalledProcess {
public:
    /// nullptr: it has ended.
    [[nodiscard]] static std::shared_ptr<const SignalledProcess> open(pid_t pid);

    void send(int signal) const;
    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    SignalledProcess(pid_t pid, OwnedFd fd) : pid_{pid}, fd_{std::move(fd)} {}
    pid_t pid_;
    OwnedFd fd_;
};

class StoppedStages {
public:
    using Clock = std::chrono::steady_clock;

    /// `stalls`: stop() will be called.
    StoppedStages(std::vector<SlowStage> slow, bool stalls);
    StoppedStages(const StoppedStages&) = delete;
    StoppedStages& operator=(const StoppedStages&) = delete;
    ~StoppedStages();

    [[nodiscard]] bool slows_any() const { return !slow_.empty(); }
    /// Finds the processes of slow stages among those that live now.
    void find_slow(std::span<const SessionProcess> processes);
    /// Stops a process once, and continues it after `lasts`.
    void stop(std::shared_ptr<const SignalledProcess> process, std::chrono::milliseconds lasts);

private:
    void work();
    void let_go_on(Clock::time_point now);

    const std::vector<SlowStage> slow_;
    std::mutex mutex_;                                                      // of the next two
    std::map<std::string, std::shared_ptr<const SignalledProcess>> found_;  // slow ones, by name
    std::multimap<Clock::time_point, std::shared_ptr<const SignalledProcess>> stalled_;
    std::atomic<bool> over_{false};  // relaxed: a late look is only a late end
    std::thread helper_;             // last: it uses the rest
};

}  // namespace paceline

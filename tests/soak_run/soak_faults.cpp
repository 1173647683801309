#include "tests/soak_run/soak_faults.hpp"

#include <algorithm>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace paceline::testing {
namespace {

constexpr auto kLook = std::chrono::milliseconds{20};

OwnedFd open_process(pid_t pid) {
    return OwnedFd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
}
void send_signal(const OwnedFd& process, int signal) {
    if (process) ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
}

}  // namespace

SoakFaults::SoakFaults(const SoakPlan& plan, const PipelineSession& session)
    : plan_{plan},
      session_{session},
      random_{plan.seed + 1},
      next_{begun_ + plan.fault_every},
      helper_{[this] {
          while (!over_.load(std::memory_order_relaxed)) {
              std::this_thread::sleep_for(kLook);
              continue_due();
          }
      }} {}

SoakFaults::~SoakFaults() {
    over_.store(true, std::memory_order_relaxed);
    helper_.join();
    end();
}

void SoakFaults::end() {
    next_ = SoakClock::time_point::max();
    const std::lock_guard guard{lock_};
    for (const auto& [until, process] : stopped_) send_signal(process, SIGCONT);
    stopped_.clear();
}

void SoakFaults::continue_due() {
    const std::lock_guard guard{lock_};
    const auto now = SoakClock::now();
    while (!stopped_.empty() && stopped_.begin()->first <= now) {
        send_signal(stopped_.begin()->second, SIGCONT);
        stopped_.erase(stopped_.begin());
    }
}

void SoakFaults::tick(SoakClock::time_point now) {
    if (now < next_) return;
    next_ = now + plan_.fault_every;
    const std::uint64_t kind = random_() % 100;
    if (kind < 60) return kill_one(now);
    if (kind < 70) {
        kill_one(now);
        return kill_one(now);
    }
    pause_one(now);
}

/// The process that is next; 0: it is being replaced just now, or is spared.
pid_t SoakFaults::deal(SoakClock::time_point now) {
    const std::vector<SessionProcess> processes = session_.stages();
    if (deck_.empty()) {
        for (const SessionProcess& process : processes) deck_.push_back(process.name);
        std::shuffle(deck_.begin(), deck_.end(), random_);
    }
    const std::string name = std::move(deck_.back());
    deck_.pop_back();
    const double part = std::chrono::duration<double>(now - begun_) / plan_.length;
    const auto era = static_cast<std::size_t>(part * static_cast<double>(processes.size()));
    for (std::size_t i = 0; i < processes.size(); ++i) {
        if (processes[i].name != name) continue;
        return processes.size() > 1 && i == era ? 0 : processes[i].pid;
    }
    return 0;
}

void SoakFaults::kill_one(SoakClock::time_point now) {
    pid_t pid = deal(now);
    if (pid == 0) pid = deal(now);
    if (pid == 0) return;
    const OwnedFd process = open_process(pid);
    if (!process) return;
    send_signal(process, SIGKILL);
    ++kills_;
}

void SoakFaults::pause_one(SoakClock::time_point now) {
    const pid_t pid = deal(now);
    if (pid == 0) return;
    OwnedFd process = open_process(pid);
    if (!process) return;
    send_signal(process, SIGSTOP);
    ++pauses_;
    const auto scale = static_cast<std::int64_t>(std::uint64_t{50} << (random_() % 8));
    const std::chrono::milliseconds lasts{scale + static_cast<std::int64_t>(random_() % 50)};
    const std::lock_guard guard{lock_};
    stopped_.emplace(now + lasts, std::move(process));
}

}  // namespace paceline::testing

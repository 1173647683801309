#include "launch/check/stopped_stages.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc/base/denied_call.hpp"

namespace paceline {
namespace {

// Slow stages are stopped for a part of each period: long against a wake-up, short against a batch.
constexpr std::chrono::milliseconds kPeriod{20};
constexpr std::chrono::milliseconds kIdle{5};

}  // namespace

// glibc before 2.36 has no wrappers for these system calls.
std::shared_ptr<const SignalledProcess> SignalledProcess::open(pid_t pid) {
    OwnedFd fd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
    if (!fd && !is_denied(errno)) return nullptr;
    return std::shared_ptr<const SignalledProcess>{new SignalledProcess{pid, std::move(fd)}};
}

/// Where process descriptors are denied the number is used. Once the supervisor has reaped the
/// process it could belong to another one, which is stopped or continued then; that is rare, and
/// `check` alone does it.
void SignalledProcess::send(int signal) const {
    const bool sent = fd_ && ::syscall(SYS_pidfd_send_signal, fd_.get(), signal, nullptr, 0) == 0;
    if (!sent && (!fd_ || is_denied(errno))) ::kill(pid_, signal);
}

StoppedStages::StoppedStages(std::vector<SlowStage> slow, bool stalls) : slow_{std::move(slow)} {
    if (stalls || !slow_.empty()) helper_ = std::thread{[this] { work(); }};
}

StoppedStages::~StoppedStages() {
    over_.store(true, std::memory_order_relaxed);
    if (helper_.joinable()) helper_.join();
    for (const auto& [name, process] : found_) process->send(SIGCONT);
    for (const auto& [until, process] : stalled_) process->send(SIGCONT);
}

void StoppedStages::find_slow(std::span<const SessionProcess> processes) {
    for (const SessionProcess& process : processes) {
        const bool wanted = std::any_of(slow_.begin(), slow_.end(), [&](const SlowStage& slow) {
            return slow.name == process.name;
        });
        if (!wanted || process.pid == 0) continue;
        const std::lock_guard guard{mutex_};
        const auto known = found_.find(process.name);
        if (known != found_.end() && known->second->pid() == process.pid) continue;
        auto opened = SignalledProcess::open(process.pid);
        if (opened == nullptr) {
            found_.erase(process.name);  // it has ended meanwhile
        } else {
            found_[process.name] = std::move(opened);
        }
    }
}

void StoppedStages::stop(std::shared_ptr<const SignalledProcess> process,
                         std::chrono::milliseconds lasts) {
    process->send(SIGSTOP);
    const std::lock_guard guard{mutex_};
    stalled_.emplace(Clock::now() + lasts, std::move(process));
}

void StoppedStages::let_go_on(Clock::time_point now) {
    while (!stalled_.empty() && stalled_.begin()->first <= now) {
        stalled_.begin()->second->send(SIGCONT);
        stalled_.erase(stalled_.begin());
    }
}

void StoppedStages::work() {
    const auto begun = Clock::now();
    while (!over_.load(std::memory_order_relaxed)) {
        const auto now = Clock::now();
        const auto place = (now - begun) % kPeriod;
        auto next = now + kIdle;
        {
            const std::lock_guard guard{mutex_};
            let_go_on(now);
            for (const SlowStage& slow : slow_) {
                const auto found = found_.find(slow.name);
                if (found == found_.end()) continue;
                const auto stopped_for = kPeriod * slow.percent / 100;
                const bool stop = place < stopped_for;
                found->second->send(stop ? SIGSTOP : SIGCONT);
                next = std::min(next, now + (stop ? stopped_for - place : kPeriod - place));
            }
        }
        std::this_thread::sleep_until(next);
    }
}

}  // namespace paceline

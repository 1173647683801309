#include "launch/check/faults.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "ipc/base/denied_call.hpp"

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

// Slow stages are stopped for a part of each period: long against a wake-up, short against a batch.
constexpr std::chrono::milliseconds kPeriod{20};
constexpr std::chrono::milliseconds kIdle{5};
constexpr int kStallMillisMin = 5;
constexpr int kStallMillisMax = 300;
constexpr std::uint64_t kTicksPerLook = 32;
// Long enough for a death to be noticed.
constexpr std::chrono::milliseconds kBetween{20};

// glibc before 2.36 has no wrappers for these.
OwnedFd open_process(pid_t pid) {
    return OwnedFd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
}

/// Where process descriptors are denied the number is used. Once the supervisor has reaped the
/// process it could belong to another one, which is stopped or continued then; that is rare, and
/// `check` alone does it.
void send_signal(pid_t pid, const OwnedFd& process, int signal) {
    const bool sent =
        process && ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
    if (!sent && (!process || is_denied(errno))) ::kill(pid, signal);
}

}  // namespace

Result<SlowStage> parse_slow_stage(const std::string& word) {
    SlowStage slow;
    const std::size_t colon = word.rfind(':');
    const Error wrong{Errc::BadArgument,
                      "--delay " + word +
                          ": must be NAME:PERCENT, a process and the 1 to 95 percent of the time "
                          "that it is stopped, such as draft:50"};
    if (colon == std::string::npos || colon == 0) return wrong;
    slow.name = word.substr(0, colon);
    const char* end = word.data() + word.size();
    const auto [stop, code] = std::from_chars(word.data() + colon + 1, end, slow.percent);
    if (code != std::errc{} || stop != end || slow.percent < 1 || slow.percent > 95) return wrong;
    return slow;
}

std::vector<StageFault> draw_faults(const FaultPlan& plan,
                                    std::size_t prompts,
                                    std::size_t tokens) {
    std::mt19937_64 random{plan.seed};
    std::vector<StageFault> due;
    const auto add = [&](FaultKind kind, int count) {
        for (int i = 0; i < count && prompts > 0; ++i) {
            // Not after the middle: answers may be shorter than they are allowed to be.
            const std::size_t range = std::max<std::size_t>(1, tokens / 2);
            due.push_back({static_cast<std::size_t>(i) * prompts / static_cast<std::size_t>(count),
                           1 + static_cast<std::size_t>(random() % range), kind});
        }
    };
    add(FaultKind::Kill, plan.kills);
    add(FaultKind::Stall, plan.stalls);
    std::stable_sort(due.begin(), due.end(), [](const StageFault& a, const StageFault& b) {
        return std::pair{a.prompt, a.token} < std::pair{b.prompt, b.token};
    });
    return due;
}

StageFaults::StageFaults(const FaultPlan& plan, std::size_t prompts, std::size_t tokens)
    : plan_{plan}, due_{draw_faults(plan, prompts, tokens)}, random_{plan.seed + 1} {
    if (plan_.stalls > 0 || !plan_.slow.empty()) helper_ = std::thread{[this] { work(); }};
}

StageFaults::~StageFaults() {
    over_.store(true, std::memory_order_relaxed);
    if (helper_.joinable()) helper_.join();
    for (const auto& [name, handle] : slow_) send_signal(handle->pid, handle->fd, SIGCONT);
    for (const auto& [until, handle] : stalled_) send_signal(handle->pid, handle->fd, SIGCONT);
}

void StageFaults::tick(std::size_t prompt, std::size_t token, const PipelineSession& session) {
    // The list of processes is only needed for those that are slow, and changes rarely.
    if (!plan_.slow.empty() && ticks_++ % kTicksPerLook == 0) look_at(session);
    const bool due = next_ < due_.size() &&
                     std::pair{prompt, token} >= std::pair{due_[next_].prompt, due_[next_].token};
    if (!due) return;
    // One at a time, the next when what the last one killed is back: several losses without a
    // token in between make a request suspicious, and several at once show less than one by one.
    const std::vector<SessionProcess> processes = session.stages();
    const bool whole = std::all_of(processes.begin(), processes.end(),
                                   [](const SessionProcess& process) { return process.pid != 0; });
    const auto now = Clock::now();
    if (!whole || now < last_ + kBetween) return;
    last_ = now;
    happen(due_[next_].kind, session);
    ++next_;
}

void StageFaults::look_at(const PipelineSession& session) {
    for (const SessionProcess& process : session.stages()) {
        const bool wanted =
            std::any_of(plan_.slow.begin(), plan_.slow.end(),
                        [&](const SlowStage& slow) { return slow.name == process.name; });
        if (!wanted || process.pid == 0) continue;
        const std::lock_guard guard{lock_};
        std::shared_ptr<Handle>& handle = slow_[process.name];
        if (handle && handle->pid == process.pid) continue;
        OwnedFd opened = open_process(process.pid);
        if (!opened && !is_denied(errno)) {
            slow_.erase(process.name);  // it has ended meanwhile
            continue;
        }
        handle = std::make_shared<Handle>(Handle{process.pid, std::move(opened)});
    }
}

void StageFaults::happen(FaultKind kind, const PipelineSession& session) {
    std::vector<SessionProcess> alive = session.stages();
    std::erase_if(alive, [](const SessionProcess& process) { return process.pid == 0; });
    if (alive.empty()) return;
    const pid_t pid = alive[random_() % alive.size()].pid;
    auto handle = std::make_shared<Handle>(Handle{pid, open_process(pid)});
    if (!handle->fd && !is_denied(errno)) return;  // it has ended by itself meanwhile
    if (kind == FaultKind::Kill) {
        send_signal(pid, handle->fd, SIGKILL);
        ++kills_;
        return;
    }
    send_signal(pid, handle->fd, SIGSTOP);
    ++stalls_;
    const std::chrono::milliseconds lasts{
        kStallMillisMin + static_cast<int>(random_() % (kStallMillisMax - kStallMillisMin))};
    const std::lock_guard guard{lock_};
    stalled_.emplace(Clock::now() + lasts, std::move(handle));
}

void StageFaults::let_go_on(Clock::time_point now) {
    while (!stalled_.empty() && stalled_.begin()->first <= now) {
        const Handle& handle = *stalled_.begin()->second;
        send_signal(handle.pid, handle.fd, SIGCONT);
        stalled_.erase(stalled_.begin());
    }
}

void StageFaults::work() {
    const auto begun = Clock::now();
    while (!over_.load(std::memory_order_relaxed)) {
        const auto now = Clock::now();
        const auto place = (now - begun) % kPeriod;
        auto next = now + kIdle;
        {
            const std::lock_guard guard{lock_};
            let_go_on(now);
            for (const SlowStage& slow : plan_.slow) {
                const auto found = slow_.find(slow.name);
                if (found == slow_.end()) continue;
                const auto stopped_for = kPeriod * slow.percent / 100;
                const bool stop = place < stopped_for;
                send_signal(found->second->pid, found->second->fd, stop ? SIGSTOP : SIGCONT);
                next = std::min(next, now + (stop ? stopped_for - place : kPeriod - place));
            }
        }
        std::this_thread::sleep_until(next);
    }
}

}  // namespace paceline

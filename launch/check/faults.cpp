#include "launch/check/faults.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <utility>

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStallMillisMin = 5;
constexpr int kStallMillisMax = 300;
constexpr std::uint64_t kTicksPerLook = 32;
// Long enough for a death to be noticed.
constexpr std::chrono::milliseconds kBetween{20};

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
    : due_{draw_faults(plan, prompts, tokens)},
      random_{plan.seed + 1},
      stopped_{plan.slow, plan.stalls > 0} {}

void StageFaults::tick(std::size_t prompt, std::size_t token, const PipelineSession& session) {
    // The list of processes is only needed for those that are slow, and changes rarely.
    if (stopped_.slows_any() && ticks_++ % kTicksPerLook == 0) stopped_.find_slow(session.stages());
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
    happen(due_[next_].kind, session.stages());
    ++next_;
}

void StageFaults::happen(FaultKind kind, std::vector<SessionProcess> alive) {
    std::erase_if(alive, [](const SessionProcess& process) { return process.pid == 0; });
    if (alive.empty()) return;
    auto process = SignalledProcess::open(alive[random_() % alive.size()].pid);
    if (process == nullptr) return;  // it has ended by itself meanwhile
    if (kind == FaultKind::Kill) {
        process->send(SIGKILL);
        ++kills_;
        return;
    }
    ++stalls_;
    const std::chrono::milliseconds lasts{
        kStallMillisMin + static_cast<int>(random_() % (kStallMillisMax - kStallMillisMin))};
    stopped_.stop(std::move(process), lasts);
}

}  // namespace paceline

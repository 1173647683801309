#include "actors/conductor/recovery_deadlines.hpp"

#include <algorithm>

#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

/// Interval at which waiting requests are checked.
constexpr Micros kRecoveryStep{2'000'000};

}  // namespace

void RecoveryDeadlines::start(Context& context, RequestId request) {
    if (timers_.contains(request)) return;
    timers_[request] = ++newest_;
    wait(context, request, {.timer = newest_, .left = limit_});
}

/// In short steps: a step that takes much longer than it should contains a pause; only the length
/// of the step counts.
void RecoveryDeadlines::wait(Context& context, RequestId request, Wait wait) {
    const Micros step = std::min(wait.left, kRecoveryStep);
    const Micros begun = context.now();
    context.schedule(step, [this, &context, request, wait, step, begun]() mutable {
        const auto found = timers_.find(request);
        if (found == timers_.end() || found->second != wait.timer) return;
        Micros waited = context.now() - begun;
        const bool paused = waited > step + kRecoveryStep;
        if (paused && !planted(PlantedBug::PauseCountsAsWaiting)) waited = step;
        wait.left -= waited;
        // After a pause the stages have one more step to report. Only once, because every step is
        // late where a callback takes long.
        if (paused && wait.left < kRecoveryStep && !std::exchange(wait.is_last, true))
            wait.left = kRecoveryStep;
        if (wait.left.count() > 0) return this->wait(context, request, wait);
        timers_.erase(found);
        on_expired_(request);
    });
}

}  // namespace paceline

#include "runtime/parent/hang_check.hpp"

#include <utility>

namespace paceline {
namespace {

/// Between two looks at all telemetry blocks.
constexpr std::chrono::milliseconds kCheckInterval{10};
constexpr std::chrono::milliseconds kLateCheck{1'000};

}  // namespace

void HangCheck::note_pause() {
    if (!run_.is_running()) return;
    const StageWatch::Nanos now = monotonic_now();
    const StageWatch::Nanos before = std::exchange(polled_at_, now);
    const StageWatch::Nanos gap = now - before;
    if (before.count() == 0 || gap <= kLateCheck) return;
    for (SupervisedStage& stage : run_.stages.all()) stage.newest.watch.paused(now, gap);
    run_.recovery->paused(std::chrono::duration_cast<Micros>(gap), micros_now());
}

void HangCheck::look() {
    const StageWatch::Nanos now = monotonic_now();
    if (now - looked_at_ < kCheckInterval) return;
    looked_at_ = now;
    for (SupervisedStage& stage : run_.stages.all()) {
        if (stage.newest.gone || stage.newest.state != StageIncarnation::State::Ready) continue;
        if (run_.node->judges_deadlines(stage.spec.id)) continue;
        const std::optional<std::string> complaint =
            stage.newest.watch.complaint(stage.newest.telemetry->snapshot(), now);
        if (!complaint) continue;
        stage.newest.hung = !stage.newest.watch.is_stopped();
        run_.recovery->suspect(stage.spec.id, stage.epoch,
                               run_.node->title(stage.who()) + " " + *complaint, micros_now());
    }
}

}  // namespace paceline

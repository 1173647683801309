// What ConductorActor does about requests that make no progress (progress_watch.hpp).
#include <fmt/core.h>
#include <string>

#include "actors/conductor/conductor_actor.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

void ConductorActor::watch_progress() {
    if (watching_ || watch_.idle()) return;
    watching_ = true;
    context_->schedule(watch_.period(), [this] {
        watching_ = false;
        look_for_overdue();
        watch_progress();
    });
}

void ConductorActor::look_for_overdue() {
    if (planted(PlantedBug::ProgressUnwatched)) return;
    std::optional<std::uint64_t> rows_done;
    if (plan_.rows_done) rows_done = plan_.rows_done();
    const std::vector<ProgressWatch::Overdue> overdue = watch_.overdue(context_->now(), rows_done);
    for (const ProgressWatch::Overdue& each : overdue) give_up_attempt(each);
    if (!overdue.empty()) begin_waiting();
}

void ConductorActor::give_up_attempt(const ProgressWatch::Overdue& overdue) {
    const RequestId request = overdue.request;
    const auto found = answers_.find(request);  // another one's on_end may have ended it
    if (found == answers_.end() || found->second.phase != Phase::Running) return;
    Answer& answer = found->second;
    if (!answer.voided) {
        answer.voided = true;
        answer.held = 0;  // a stage that missed a message may lack cached positions
        return to_next_attempt(request, answer);
    }
    const ConductorPlan::Stage* verifier = stage(plan_.verifier);
    end(request, FinishReason::Interrupted,
        Error{Errc::PeerGone,
              fmt::format(
                  "{} is ended: no verdict of {} about position {} within {} ms, at most {} ms "
                  "were expected; so it was in the attempt before, and all stages seem to be at "
                  "work",
                  name_of(request), verifier != nullptr ? name_of(*verifier) : "the last segment",
                  log_.text(request).size(), overdue.waited.count() / 1000,
                  overdue.limit.count() / 1000)});
}

/// The first verdict of an attempt proves only that its prompt was processed; the next one, that the
/// stages receive verdicts and continue.
void ConductorActor::note_verdict(RequestId request, Answer& answer) {
    watch_.verdict(request, context_->now());
    if (answer.answered) answer.voided = false;
    answer.answered = true;
}

}  // namespace paceline

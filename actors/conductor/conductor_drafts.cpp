// What ConductorActor tells the stages without which decoding goes on (draft_trials.hpp).
#include "actors/conductor/conductor_actor.hpp"

namespace paceline {

/// Tells each draft that is there of the running requests that it may know and does not yet.
void ConductorActor::tell_drafts() {
    if (context_ == nullptr) return;
    for (auto& [stage, trials] : trials_) {
        if (lost_.contains(stage)) continue;
        for (const RequestId request : trials.to_tell(in_phase(Phase::Running), context_->now())) {
            post_begin(request, answers_.at(request), stage);
        }
    }
}

/// Of one that shares its process with a segment that segment's loss says all.
void ConductorActor::lose_draft(const ConductorPlan::Stage& lost) {
    DraftTrials& trials = trials_.at(lost.id);
    if (!lost.apart) return trials.void_all();
    trials.lost(context_->now());
    suspects_.lost(lost.id);
    for (const RequestId request : in_phase(Phase::Running)) suspects_.met_beside(request);
}

/// Called where time has passed: decoding goes on whatever becomes of a draft.
void ConductorActor::look_at_trials() {
    bool freed = false;
    for (auto& [stage, trials] : trials_) {
        freed = trials.look(context_->now()) || freed;
        for (std::size_t n = trials.take_excused(); n > 0; --n) context_->excuse_loss(stage);
    }
    if (freed) tell_drafts();
}

void ConductorActor::end_trials(RequestId request, bool by_itself) {
    for (auto& [stage, trials] : trials_) {
        trials.ended(request, by_itself);
        for (std::size_t n = trials.take_excused(); n > 0; --n) context_->excuse_loss(stage);
    }
}

}  // namespace paceline

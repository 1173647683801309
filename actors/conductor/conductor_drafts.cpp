// ConductorActor and the stages that decoding does not depend on: which Begins they get (draft_trials.hpp).
#include <algorithm>

#include "actors/conductor/conductor_actor.hpp"

namespace paceline {

StageId ConductorActor::home_of(const ConductorPlan::Stage& stage) {
    return stage.home == StageId{} ? stage.id : stage.home;
}

/// Whether no stage of this process is lost, apart from `but`.
bool ConductorActor::is_home_whole(StageId home, const ConductorPlan::Stage* but) const {
    return std::none_of(plan_.begin_to.begin(), plan_.begin_to.end(),
                        [&](const ConductorPlan::Stage& each) {
                            return &each != but && home_of(each) == home && lost_.contains(each.id);
                        });
}

/// Sends each draft that is at work the Begins that its trials allow and that it has not got yet.
void ConductorActor::tell_drafts() {
    if (context_ == nullptr) return;
    for (auto& [home, trials] : trials_) {
        if (!is_home_whole(home)) continue;
        for (const RequestId request : trials.to_tell(in_phase(Phase::Running), context_->now())) {
            for (const ConductorPlan::Stage& each : plan_.begin_to) {
                if (each.essential || home_of(each) != home) continue;
                post_begin(request, answers_.at(request), each.id);
            }
        }
    }
}

/// If it shares its process with a segment, the loss of the segment is handled instead. Of several in one
/// process only the first loss counts: it is one death, and excused once.
void ConductorActor::lose_draft(const ConductorPlan::Stage& lost) {
    const StageId home = home_of(lost);
    DraftTrials& trials = trials_.at(home);
    if (!lost.apart) return trials.void_all();
    if (!is_home_whole(home, &lost)) return;
    trials.lost(context_->now());
    suspects_.lost(lost.id);
    for (const RequestId request : in_phase(Phase::Running)) suspects_.met_beside(request);
}

/// A verdict shows that time has passed and which candidates were verified.
void ConductorActor::note_in_trials(const msg::Verdict& verdict) {
    bool freed = false;
    for (auto& [home, trials] : trials_) {
        const ConductorPlan::Stage* draft = stage(home);
        const bool own = draft != nullptr && draft->proposes_alone && verdict.depth > 0;
        const Micros now = context_->now();
        freed = trials.verdict(verdict.route.request, verdict.base, own, now) || freed;
        freed = trials.look(now) || freed;
        for (std::size_t n = trials.take_excused(); n > 0; --n) context_->excuse_loss(home);
    }
    if (freed) tell_drafts();
}

void ConductorActor::end_trials(RequestId request, bool by_itself) {
    for (auto& [home, trials] : trials_) {
        trials.ended(request, by_itself);
        for (std::size_t n = trials.take_excused(); n > 0; --n) context_->excuse_loss(home);
    }
}

}  // namespace paceline

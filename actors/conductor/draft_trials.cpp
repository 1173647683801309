#include "actors/conductor/draft_trials.hpp"

#include <utility>

#include "ipc/base/faults.hpp"

namespace paceline {

std::vector<RequestId> DraftTrials::to_tell(std::span<const RequestId> running, Micros now) {
    std::vector<RequestId> untold;
    std::vector<RequestId> told;
    for (const RequestId request : running) {
        if (withheld_.contains(request)) continue;
        (told_.contains(request) ? told : untold).push_back(request);
    }
    std::vector<RequestId> tell = suspects_.may_begin(untold, told);
    for (const RequestId request : tell) told_[request] = {.at = now};
    return tell;
}

bool DraftTrials::look(Micros now) {
    bool freed = false;
    for (auto& [request, told] : told_) {
        if (told.harmless || now - told.at < trial_) continue;
        told.harmless = true;
        freed = suspects_.cleared(request) || freed;
        has_worked();
    }
    return freed;
}

void DraftTrials::lost(Micros now) {
    (void)look(now);
    suspects_.lost(stage_);
    const std::map<RequestId, Told> told = std::exchange(told_, {});
    for (const auto& [request, what] : told) {
        if (!suspects_.met(request, told.size() == 1)) continue;
        if (planted(PlantedBug::PoisonTellsDraft)) continue;
        withheld_.insert(request);
        excuses_[request] += suspects_.explained_by(request).size();
        suspects_.forget(request);
    }
}

void DraftTrials::ended(RequestId request, bool by_itself) {
    if (told_.erase(request) != 0 && by_itself) has_worked();
    withheld_.erase(request);
    suspects_.forget(request);
}

void DraftTrials::has_worked() {
    for (const auto& [request, losses] : std::exchange(excuses_, {})) excused_ += losses;
}

std::size_t DraftTrials::take_excused() {
    return std::exchange(excused_, 0);
}

}  // namespace paceline

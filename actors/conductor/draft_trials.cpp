#include "actors/conductor/draft_trials.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/faults.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

/// At most this much of the time between two calls of look() counts.
constexpr Micros kStepMax{2'000'000};
/// Candidates of a lost incarnation lie at most this far behind the text that it had.
constexpr Position kOldCandidatesMax = kGammaMax;

}  // namespace

std::vector<RequestId> DraftTrials::to_tell(std::span<const RequestId> running, Micros now) {
    pass(now);
    std::vector<RequestId> untold;
    std::vector<RequestId> told;
    for (const RequestId request : running) {
        if (withheld_.contains(request)) continue;
        (told_.contains(request) ? told : untold).push_back(request);
    }
    std::vector<RequestId> tell = suspects_.may_begin(untold, told);
    for (const RequestId request : tell) {
        const bool again = !told_before_.insert(request).second;
        told_[request] = {.at = clock_, .again = again};
    }
    return tell;
}

void DraftTrials::pass(Micros now) {
    clock_ += std::min(now - std::exchange(looked_at_, now), kStepMax);
}

bool DraftTrials::verdict(RequestId request, Position base, bool candidates, Micros now) {
    pass(now);
    const auto found = told_.find(request);
    if (found == told_.end()) return false;
    Told& told = found->second;
    if (!told.own_from) told.own_from = base + (told.again ? kOldCandidatesMax : 0);
    if (!candidates || base < *told.own_from) return false;
    told.proposes = true;
    return clock_ - told.at >= rules_.trial && lives_with(request, told);
}

bool DraftTrials::look(Micros now) {
    pass(now);
    bool freed = false;
    for (auto& [request, told] : told_) {
        if (clock_ - told.at < rules_.silent_trial) continue;
        freed = lives_with(request, told) || freed;
    }
    return freed;
}

/// True: call to_tell() again.
bool DraftTrials::lives_with(RequestId request, Told& told) {
    if (std::exchange(told.harmless, true)) return false;
    has_worked();
    return suspects_.cleared(request);
}

void DraftTrials::lost(Micros now) {
    (void)look(now);
    suspects_.lost(process_);
    const std::map<RequestId, Told> told = std::exchange(told_, {});
    for (const auto& [request, what] : told) {
        if (!suspects_.met(request, told.size() == 1)) continue;
        if (planted(PlantedBug::PoisonTellsDraft)) continue;
        withheld_.insert(request);
        excuses_[request] += suspects_.explained_by(request).size();
        suspects_.forget(request);
    }
}

void DraftTrials::void_attempt(RequestId request) {
    told_.erase(request);
    told_before_.erase(request);
}

void DraftTrials::ended(RequestId request, bool by_itself) {
    const auto found = told_.find(request);
    const bool worked = found != told_.end() && (found->second.proposes || found->second.harmless);
    void_attempt(request);
    if (by_itself && worked) has_worked();
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

#include "actors/conductor/draft_quarantine.hpp"

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

std::vector<RequestId> DraftQuarantine::to_deliver(std::span<const RequestId> running, Micros now) {
    pass(now);
    std::vector<RequestId> undelivered;
    std::vector<RequestId> delivered;
    for (const RequestId request : running) {
        if (withheld_.contains(request)) continue;
        (delivered_.contains(request) ? delivered : undelivered).push_back(request);
    }
    std::vector<RequestId> now_due = quarantine_.may_begin(undelivered, delivered);
    for (const RequestId request : now_due) {
        const bool again = !delivered_before_.insert(request).second;
        delivered_[request] = {.at = clock_, .again = again};
    }
    return now_due;
}

void DraftQuarantine::pass(Micros now) {
    clock_ += std::min(now - std::exchange(looked_at_, now), kStepMax);
}

bool DraftQuarantine::verdict(RequestId request, Position base, bool candidates, Micros now) {
    pass(now);
    const auto found = delivered_.find(request);
    if (found == delivered_.end()) return false;
    DeliveredBegin& delivered = found->second;
    if (!delivered.own_from) delivered.own_from = base + (delivered.again ? kOldCandidatesMax : 0);
    if (!candidates || base < *delivered.own_from) return false;
    delivered.proposes = true;
    return clock_ - delivered.at >= rules_.clear_after && lives_with(request, delivered);
}

bool DraftQuarantine::look(Micros now) {
    pass(now);
    bool freed = false;
    for (auto& [request, delivered] : delivered_) {
        if (clock_ - delivered.at < rules_.clear_silent_after) continue;
        freed = lives_with(request, delivered) || freed;
    }
    return freed;
}

/// True: call to_deliver() again.
bool DraftQuarantine::lives_with(RequestId request, DeliveredBegin& delivered) {
    if (std::exchange(delivered.harmless, true)) return false;
    has_worked();
    return quarantine_.cleared(request);
}

void DraftQuarantine::lost(Micros now) {
    (void)look(now);
    quarantine_.lost(process_);
    const std::map<RequestId, DeliveredBegin> delivered = std::exchange(delivered_, {});
    for (const auto& [request, begin] : delivered) {
        if (!quarantine_.present_at_loss(request, delivered.size() == 1)) continue;
        if (planted(PlantedBug::PoisonSentToDraft)) continue;
        withheld_.insert(request);
        excuses_[request] += quarantine_.explained_by(request).size();
        quarantine_.forget(request);
    }
}

void DraftQuarantine::void_attempt(RequestId request) {
    delivered_.erase(request);
    delivered_before_.erase(request);
}

void DraftQuarantine::ended(RequestId request, bool by_itself) {
    const auto found = delivered_.find(request);
    const bool worked =
        found != delivered_.end() && (found->second.proposes || found->second.harmless);
    void_attempt(request);
    if (by_itself && worked) has_worked();
    withheld_.erase(request);
    quarantine_.forget(request);
}

void DraftQuarantine::has_worked() {
    for (const auto& [request, losses] : std::exchange(excuses_, {})) excused_ += losses;
}

std::size_t DraftQuarantine::take_excused() {
    return std::exchange(excused_, 0);
}

}  // namespace paceline

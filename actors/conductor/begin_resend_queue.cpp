#include "actors/conductor/begin_resend_queue.hpp"

#include <algorithm>

namespace paceline {

void BeginResendQueue::want(RequestId request, StageId stage, Position position) {
    Demand& demand = demands_[request][stage];
    demand.wanted = std::max(demand.wanted, position);
}

std::vector<StageId> BeginResendQueue::due(RequestId request, Position length) {
    std::vector<StageId> stages;
    const auto found = demands_.find(request);
    if (found == demands_.end()) return stages;
    for (auto& [stage, demand] : found->second) {
        if (demand.wanted <= demand.sent || demand.wanted > length) continue;
        demand.sent = length;
        stages.push_back(stage);
    }
    return stages;
}

void BeginResendQueue::forget(StageId stage) {
    for (auto& [request, demands] : demands_) demands.erase(stage);
}

}  // namespace paceline

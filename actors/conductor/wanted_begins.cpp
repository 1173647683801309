#include "actors/conductor/wanted_begins.hpp"

#include <algorithm>

namespace paceline {

void WantedBegins::want(RequestId request, StageId stage, Position position) {
    Demand& demand = demands_[request][stage];
    demand.wanted = std::max(demand.wanted, position);
}

std::vector<StageId> WantedBegins::due(RequestId request, Position length) {
    std::vector<StageId> stages;
    const auto found = demands_.find(request);
    if (found == demands_.end()) return stages;
    for (auto& [stage, demand] : found->second) {
        if (demand.wanted <= demand.told || demand.wanted > length) continue;
        demand.told = length;
        stages.push_back(stage);
    }
    return stages;
}

void WantedBegins::forget(StageId stage) {
    for (auto& [request, demands] : demands_) demands.erase(stage);
}

}  // namespace paceline

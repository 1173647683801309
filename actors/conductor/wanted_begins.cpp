#include "actors/conductor/wanted_begins.hpp"

#include <algorithm>

namespace paceline {

void WantedBegins::want(RequestId request, StageId stage, Position position) {
    Wish& wish = wishes_[request][stage];
    wish.wanted = std::max(wish.wanted, position);
}

std::vector<StageId> WantedBegins::due(RequestId request, Position length) {
    std::vector<StageId> stages;
    const auto found = wishes_.find(request);
    if (found == wishes_.end()) return stages;
    for (auto& [stage, wish] : found->second) {
        if (wish.wanted <= wish.told || wish.wanted > length) continue;
        wish.told = length;
        stages.push_back(stage);
    }
    return stages;
}

void WantedBegins::forget(StageId stage) {
    for (auto& [request, wishes] : wishes_) wishes.erase(stage);
}

}  // namespace paceline

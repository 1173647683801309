#include "runtime/parent/supervised_stages.hpp"

#include <algorithm>

namespace paceline {

SupervisedStage* SupervisedStages::find(StageId id) {
    const auto found = std::find_if(stages_.begin(), stages_.end(),
                                    [id](const SupervisedStage& s) { return s.spec.id == id; });
    return found == stages_.end() ? nullptr : &*found;
}

SupervisedStage* SupervisedStages::current(Incarnation who) {
    SupervisedStage* stage = find(who.id);
    return stage != nullptr && stage->epoch == who.epoch ? stage : nullptr;
}

bool SupervisedStages::host(StageId actor) const {
    return std::any_of(stages_.begin(), stages_.end(), [actor](const SupervisedStage& s) {
        return std::count(s.spec.actors.begin(), s.spec.actors.end(), actor) != 0;
    });
}

}  // namespace paceline

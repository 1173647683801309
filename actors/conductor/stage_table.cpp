#include "actors/conductor/stage_table.hpp"

#include <algorithm>
#include <fmt/core.h>

namespace paceline {

const StageTable::Stage* StageTable::find(StageId id) const {
    const auto found = std::find_if(stages_.begin(), stages_.end(),
                                    [&](const Stage& candidate) { return candidate.id == id; });
    return found == stages_.end() ? nullptr : &*found;
}

bool StageTable::is_first_segment(StageId id) const {
    return std::none_of(stages_.begin(), stages_.end(),
                        [&](const Stage& stage) { return stage.essential && stage.id < id; });
}

bool StageTable::is_pipeline_whole() const {
    return std::none_of(stages_.begin(), stages_.end(), [&](const Stage& stage) {
        return stage.essential && lost_.contains(stage.id);
    });
}

bool StageTable::is_home_whole(StageId home, const Stage* but) const {
    return std::none_of(stages_.begin(), stages_.end(), [&](const Stage& each) {
        return &each != but && home_of(each) == home && lost_.contains(each.id);
    });
}

std::string StageTable::missing() const {
    std::string missing;
    for (const Stage& candidate : stages_) {
        if (!candidate.essential || !lost_.contains(candidate.id)) continue;
        missing += (missing.empty() ? "" : ", ") + name_of(candidate);
    }
    return missing;
}

StageId StageTable::home_of(const Stage& stage) {
    return stage.home == StageId{} ? stage.id : stage.home;
}

std::string StageTable::name_of(const Stage& stage) {
    return stage.name.empty() ? fmt::format("stage {}", stage.id.value) : stage.name;
}

}  // namespace paceline

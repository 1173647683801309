// StageTable: the stages of the pipeline, and which of them are lost at the moment.
//
// A lost stage stays in the table: its next incarnation joins under the same id. Several stages may
// share a process, whose home is the id of one of them; they are lost together.
// Bounded by the plan. Threads: the conductor's loop.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/conductor/conductor_plan.hpp"

namespace paceline {

class StageTable {
public:
    using Stage = ConductorPlan::Stage;

    explicit StageTable(std::vector<Stage> stages) : stages_{std::move(stages)} {}

    /// In the order in which Begins are sent.
    [[nodiscard]] const std::vector<Stage>& all() const { return stages_; }
    [[nodiscard]] const Stage* find(StageId id) const;  // nullptr: not a stage of the pipeline

    /// False: it was lost already.
    bool lose(StageId id) { return lost_.insert(id).second; }
    void join(StageId id) { lost_.erase(id); }
    [[nodiscard]] bool is_lost(StageId id) const { return lost_.contains(id); }

    /// The essential stage with the smallest id: the ids of segments ascend with their layers.
    [[nodiscard]] bool is_first_segment(StageId id) const;
    /// No essential stage is lost.
    [[nodiscard]] bool is_pipeline_whole() const;
    /// No stage of the process `home` is lost, apart from `but`.
    [[nodiscard]] bool is_home_whole(StageId home, const Stage* but = nullptr) const;
    /// The names of the essential stages that are lost: "draft, segment-1".
    [[nodiscard]] std::string missing() const;

    [[nodiscard]] static StageId home_of(const Stage& stage);
    [[nodiscard]] static std::string name_of(const Stage& stage);

private:
    std::vector<Stage> stages_;
    std::set<StageId> lost_;
};

}  // namespace paceline

// The actors of a simulated process: the real ones, on fresh toy backends, as a scenario has drawn
// their settings. What is shared (texts, disk) outlives them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/decoding/growth_rule.hpp"
#include "actors/draft/draft_source.hpp"
#include "actors/segment/batch_scheduler.hpp"
#include "runtime/simulation/sim_spec.hpp"
#include "tests/sim/sim_scenario.hpp"

namespace paceline::testing {

/// What the actors of all processes of a scenario are made of.
struct SimBodyParts {
    ToyPlan plan;
    DispatchOptions dispatch = {};
    GrowthRule growth = {};
    SimExit exit = {};
    std::optional<SelfDraftOptions> self_draft = {};
    std::optional<SearchTrialOptions> search = {};
    std::shared_ptr<std::string> disk = {};  // what is kept of either search
    Micros hold_limit{1};
    double candidate_right = 0.5;
    DraftCost draft_cost = DraftCost::Compute;
    std::shared_ptr<SimTexts> texts;
    std::shared_ptr<FeatureCounts> features;
    std::int32_t retained_slots = 0;  // by each segment but the last one
};

/// Called with the actor that a poison request is begun at, if it is set.
using OnPoison = std::shared_ptr<std::function<void(StageId)>>;

/// The actors of the process whose actors are `home`, as they are after its start.
[[nodiscard]] std::unique_ptr<SimBody> make_body(const SimBodyParts& parts,
                                                 const std::vector<StageId>& home,
                                                 const OnPoison& on_poison);

}  // namespace paceline::testing

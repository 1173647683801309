// SimScenario: the scenario of a seed: a pipeline, its requests and the actions of the clients.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/decoding/request.hpp"
#include "actors/segment/exit_options.hpp"
#include "actors/self_draft/search_trials.hpp"
#include "actors/self_draft/self_draft_options.hpp"
#include "runtime/parent/recovery.hpp"
#include "runtime/simulation/machines/sim_machine_plan.hpp"
#include "runtime/simulation/sim_faults.hpp"
#include "runtime/simulation/sim_spec.hpp"
#include "tests/sim/random_timing.hpp"
#include "tests/sim/sim_incident.hpp"
#include "tests/support/toy/toy_features.hpp"
#include "tests/support/toy/toy_pipeline.hpp"

namespace paceline::testing {

/// One turn of a conversation.
struct SimTurn {
    Request request;                          // text: what the client appends
    std::optional<std::uint32_t> stop_after;  // its callback says Stop at this token
    std::optional<SimTime> cancel_after;      // it goes away so long after it asked,
    bool polled = false;                      // which it says when asked, or by itself
    SimTime pause{0};                         // before it asks
};

struct SimClient {
    SimTime begins{0};
    std::vector<SimTurn> turns;
};

/// The texts that plain decoding makes, as far as they are known: what a draft may draw candidates
/// from.
using SimTexts = std::vector<std::vector<TokenId>>;

/// An exit of the target.
struct SimExit {
    int at = 0;  // after which segment; 0: there is none
    ExitOptions options;
};

struct SimScenario {
    ToyPlan plan;
    std::int32_t text_slots = 0;  // of plan.kv_slots, those for texts
    SimExit exit;
    std::optional<SelfDraftOptions> self_draft;  // then there is neither a draft nor an exit
    std::optional<SearchTrialOptions>
        search;  // the draft is the target without sub-layers that it searches
    std::uint32_t batches_in_flight = 1;
    std::vector<EdgeSpec> edges;
    std::vector<SimProcessSpec> processes;
    std::vector<SimClient> clients;
    std::vector<SimFault> faults;
    SimMachinePlan machines;  // besides the conductor's
    SimTime faults_end{0};
    RandomTimingLimits timing;
    RestartRules restarts;
    ConductorPlan conductor;
    SimIncident incident = SimIncident::None;
    std::optional<StageId> poison_kills;     // which segment, or the draft
    std::optional<SimTime> drain_at;         // the conductor takes no order from then on,
    SimTime drain_limit{0};                  // and ends what is open within this
    std::optional<StageId> crash_loop;       // which process never stays at work
    std::vector<SimSuspension> suspensions;  // of the whole machine
    /// Called with the actor that a poison request is begun at. The run says what follows.
    std::shared_ptr<std::function<void(StageId)>> on_poison =
        std::make_shared<std::function<void(StageId)>>();
    std::shared_ptr<SimTexts> texts = std::make_shared<SimTexts>();
    std::shared_ptr<FeatureCounts> features =
        std::make_shared<FeatureCounts>();  // an EAGLE draft's
    std::string describe() const;
};

/// In some pipelines prompts are long, and their prefill goes in batches of up to so many rows.
[[nodiscard]] inline bool has_long_prompts(const ToyPlan& plan) {
    return plan.seed % 8 == 0;
}

/// The layers after which an EAGLE draft reads the target's states; none: after the last one.
[[nodiscard]] inline std::vector<int> feature_layers_of(const ToyPlan& plan) {
    return plan.segments == 1 && plan.seed % 3 == 0 ? std::vector{2, 5} : std::vector<int>{};
}

[[nodiscard]] SimScenario draw_scenario(std::uint64_t seed, const SimKinds& kinds = {});

}  // namespace paceline::testing

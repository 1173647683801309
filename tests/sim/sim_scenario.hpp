// SimScenario: what a seed means: a pipeline, its requests and what the clients do with them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/decoding/request.hpp"
#include "actors/self_draft/self_draft_options.hpp"
#include "actors/target/exit_options.hpp"
#include "runtime/simulation/sim_faults.hpp"
#include "runtime/simulation/sim_process.hpp"
#include "runtime/simulation/sim_timing.hpp"
#include "runtime/simulation/sim_world.hpp"
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

/// The texts that plain decoding makes, as far as they are known: what a draft may draw candidates from.
using SimTexts = std::vector<std::vector<TokenId>>;

/// An exit of the target.
struct SimExit {
    int at = 0;  // after which segment; 0: there is none
    ExitOptions options;
};

struct SimScenario {
    ToyPlan plan;
    SimExit exit;
    std::optional<SelfDraftOptions> self_draft;  // then there is neither a draft nor an exit
    std::uint32_t waves_in_flight = 1;
    std::vector<EdgeSpec> edges;
    std::vector<SimProcessSpec> processes;
    std::vector<SimClient> clients;
    std::vector<SimFault> faults;
    SimTime faults_end{0};
    RandomTimingLimits timing;
    RestartRules restarts;
    ConductorPlan conductor;
    std::shared_ptr<SimTexts> texts = std::make_shared<SimTexts>();
    std::string describe() const;
};

[[nodiscard]] SimScenario draw_scenario(std::uint64_t seed);

}  // namespace paceline::testing

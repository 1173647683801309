// plan_table(): what `paceline plan` prints. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/auto_choice.hpp"
#include "launch/plan/method_record.hpp"

namespace paceline {

struct PlannedMethod {
    std::string name;
    int processes = 0;
    std::uint64_t memory_bytes = 0;  // of the host, for one request
    double predicted = 0.0;          // tokens/s; 0: not predicted
    double predicted_gain = 0.0;     // over plain decoding's prediction
    std::optional<MethodRate> measured = {};
    std::vector<std::string> notes = {};
    std::string refusal = {};    // why it cannot decode this model here; empty: it can
    bool unverified = false;     // its text is not plain decoding's
    bool guarded = true;         // the account bounds what it loses
    bool lacks_adapter = false;  // drafts behind an adapter that this model has not
};

struct PlanHead {
    std::string model;
    std::size_t cores = 1;
    double cost_seconds = 0.0;  // of the measurement
    double acceptance = 0.0;    // of drafts
    std::string acceptance_source = {};
};

/// The fastest first: measured before predicted before neither. The last line is the choice.
[[nodiscard]] std::string plan_table(const PlanHead& head,
                                     std::vector<PlannedMethod> methods,
                                     const AutoChoice& choice);

}  // namespace paceline

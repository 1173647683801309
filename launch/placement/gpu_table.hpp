// The table of a GpuPlan, for people: who is where, what each stage takes of its GPU and what is left
// there, then how stages exchange hidden states.
//
// Pure functions of values.
#pragma once

#include <string>

#include "launch/placement/gpu_plan.hpp"

namespace paceline {

/// `transports` is transports_text().
[[nodiscard]] std::string gpu_table(const GpuPlan& plan,
                                    const GpuRequest& request,
                                    const std::string& transports);

}  // namespace paceline

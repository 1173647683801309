// The table of a GpuPlan, for people: who is where, what each stage takes of its GPU and what is left
// there, then how stages exchange hidden states.
//
// Pure functions of values.
#pragma once

#include <string>
#include <vector>

#include "launch/placement/gpu_plan.hpp"
#include "runtime/loop/wiring.hpp"

namespace paceline {

/// `edges` are those of edges_of().
[[nodiscard]] std::string gpu_table(const GpuPlan& plan,
                                    const GpuRequest& request,
                                    const std::vector<EdgeSpec>& edges);

}  // namespace paceline

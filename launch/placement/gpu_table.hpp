// The printed table of a GpuPlan: the GPU of each stage, the memory that it takes and what remains
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

// The faults of a run, drawn from its seed.
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/base/ids.hpp"
#include "runtime/simulation/sim_faults.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline::testing {

/// Up to `faults_max` faults in [0, until), often close to each other.
[[nodiscard]] std::vector<SimFault> plan_faults(SimRandom& random,
                                                const std::vector<StageId>& processes,
                                                std::uint32_t faults_max,
                                                SimTime until);

}  // namespace paceline::testing

// The machines of a scenario, which machine each process is on, and what happens to the machines.
//
// Drawn from a random source of their own, for seeds that ask for machines (SimKinds::machines), so
// that the others stay what they were. Plain values.
#pragma once

#include <cstdint>

#include "runtime/simulation/machines/sim_machine_plan.hpp"

namespace paceline::testing {

struct SimScenario;

/// Puts machines into a scenario that is complete otherwise.
void add_machines(std::uint64_t seed, SimScenario& scenario);

/// Whether no stage is lost of what happens to the machines: all of it is over before a lease is.
[[nodiscard]] bool is_harmless(const SimMachinePlan& plan);
/// Whether a machine is there again, for each that was lost, before the run gives up.
[[nodiscard]] bool all_come_back(const SimScenario& scenario);
/// From the last fault until nothing follows from it any more.
[[nodiscard]] SimTime aftermath(const SimScenario& scenario);

}  // namespace paceline::testing

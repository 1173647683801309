// From a Placement to the channels and processes of the runtime, and the plan of the conductor's
// actor; and the comparison of the stages' Hellos.
//
// Pure functions of values.
#pragma once

#include <string>
#include <vector>

#include "actors/conductor/conductor_plan.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/control.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/used_parts.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/placement/placement.hpp"
#include "launch/placement/stage_assignment.hpp"
#include "runtime/loop/wiring.hpp"
#include "runtime/parent/supervisor.hpp"

namespace paceline {

/// Slots beyond the context, for speculation that runs ahead of it.
inline constexpr std::int32_t kSpareSlots = 2 * static_cast<std::int32_t>(kVerifyRowsMax);

/// Sizes of what travels beside the messages.
struct EdgeSizes {
    int dim = 0;                           // of hidden states
    std::uint64_t draft_kv_row_bytes = 0;  // keys and values of one position; 0: none travel
    std::size_t feature_states = 1;        // of the target, that make one feature
};

/// From a segment to the one after it: where hidden states travel. `rows`: of the largest batch.
[[nodiscard]] EdgeSpec batch_edge(StageId from, int dim, std::uint32_t rows);
/// From the draft to correct: the trunk, and its keys and values.
[[nodiscard]] EdgeSpec trunk_edge(StageId draft, StageId correct, std::uint64_t kv_row_bytes);
/// From a segment of `layers` layers to the draft: what they made of a token.
[[nodiscard]] EdgeSpec tap_edge(StageId segment, StageId draft, int layers, int dim);
/// From the last segment to an EAGLE draft, which reads `states` states a row: a slot for what a
/// verdict commits of each request of a batch. Prompts take several.
[[nodiscard]] EdgeSpec feature_edge(StageId verifier, StageId draft, int dim, std::size_t states);
/// Every edge at most once, also where it serves two purposes.
[[nodiscard]] std::vector<EdgeSpec> edges_of(const Placement& placement,
                                             const PipelineConfig& config,
                                             const EdgeSizes& sizes);
[[nodiscard]] ConductorPlan conductor_plan(const Placement& placement,
                                           const SupervisionConfig& supervision);

/// The part of an assignment that is equal for all processes of a pipeline.
struct CommonAssignment {
    ModelOptions model = {};  // names the file as the stages shall open it
    PartFiles parts = {};
    int usable_cores = 1;
    std::int32_t kv_slots = 0;
    int dim = 0;  // of the target's hidden states
    bool verbose = false;
    std::vector<EdgeSpec> edges = {};  // with their transports
};
/// The assignment of one process.
[[nodiscard]] StageAssignment assignment_of(const PlacedProcess& process,
                                            const Placement& placement,
                                            const PipelineConfig& config,
                                            const CommonAssignment& common);
/// One per process, in their order.
[[nodiscard]] std::vector<ProcessSpec> children_of(const Placement& placement,
                                                   const PipelineConfig& config,
                                                   const CommonAssignment& common);
/// What [supervision] means to the supervisor; its callbacks are the caller's.
[[nodiscard]] SupervisorOptions supervisor_options(const SupervisionConfig& supervision);

/// Refuses processes that would not give the bits of one: other weights, another equality class,
/// another vocabulary. `hellos` are in the order of the processes. Errors: BadArgument.
[[nodiscard]] Status check_hellos(const std::vector<control::Hello>& hellos,
                                  const Placement& placement);
/// Refuses a process that has loaded another model than that of `fingerprint`. Errors: BadArgument.
[[nodiscard]] Status check_model(const std::vector<control::Hello>& hellos,
                                 const Placement& placement,
                                 std::uint64_t fingerprint);

/// The table that a run prints: stages, processes, devices, layers, cores, memory. `pids` in the
/// order of the processes, `needs` in the order of the stages.
[[nodiscard]] std::string placement_table(const Placement& placement,
                                          const std::vector<pid_t>& pids,
                                          const std::vector<MemoryNeed>& needs);

}  // namespace paceline

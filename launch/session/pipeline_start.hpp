// From a ResolvedConfig to running stages: the placement is decided and checked before anything
// is spawned (plan_pipeline), then processes are started, compared and wired (start_pipeline).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/progress_bar.hpp"
#include "launch/base/run_log.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/load/used_parts.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/placement/placement.hpp"
#include "launch/placement/stage_sizes.hpp"
#include "model/weights/model_file.hpp"
#include "runtime/loop/wiring.hpp"
#include "runtime/parent/affinity.hpp"
#include "runtime/parent/supervisor.hpp"

namespace paceline {

/// The plan of a pipeline, made before anything is spawned.
struct PipelinePlan {
    Placement placement;
    std::vector<MemoryNeed> needs;  // in the order of the stages
    Machine machine;
    std::vector<EdgeSpec> edges;  // with their transports
    std::string transports;       // printed text; empty where no stage is on a GPU
    std::string rounded;        // block types that its models do not compute exactly; may be empty
    Position context = 0;       // of one request
    std::int32_t kv_slots = 0;  // of the caches
    std::int32_t text_slots = 0;  // of them, for the texts of all requests
};

/// The cores that a pipeline's processes share out; --threads says how many there may be, 0: all.
[[nodiscard]] std::vector<int> usable_cores(const Machine& machine, const ModelOptions& options);

/// `kv`: how much room the KV caches get. `options.threads`: the pipeline gets
/// so many cores in all, beside those that the configuration names; 0: all.
/// `cluster`: the other machines; stages without a `node` are shared out (node_shares.hpp).
/// Errors: as place(), check_gpus(), check_memory(), choose_transports() and plan_draft_backend().
[[nodiscard]] Result<PipelinePlan> plan_pipeline(const ModelFile& file,
                                                 const ModelOptions& options,
                                                 const ResolvedConfig& pipeline,
                                                 const KvSize& kv,
                                                 const Cluster* cluster = nullptr);

/// Bytes of the host's memory that the pipeline takes with KV caches of that size; nothing: a stage
/// is on a GPU, or there is no plan.
[[nodiscard]] std::optional<std::uint64_t> wanted_host_bytes(const ModelFile& file,
                                                             const ModelOptions& options,
                                                             const ResolvedConfig& pipeline,
                                                             const KvSize& kv);

/// Stages that have loaded, fit together and have their channels.
struct StartedPipeline {
    std::unique_ptr<Supervisor> supervisor;
    std::vector<control::Hello> hellos;  // in the order of the processes
    Wiring wiring;                       // the conductor's
};

/// `log` must outlive the supervisor; `bars`: of loading. Errors: PeerGone and what the stages say,
/// by name.
[[nodiscard]] Result<StartedPipeline> start_pipeline(const PipelinePlan& plan,
                                                     const ModelFile& file,
                                                     const ModelOptions& options,
                                                     const ResolvedConfig& pipeline,
                                                     RunLog& log,
                                                     bool trace,
                                                     Show bars,
                                                     Cluster* cluster = nullptr);

/// A line about stages that could not be pinned to their cores (Supervisor::pin_error); empty for
/// 0.
[[nodiscard]] std::string unpinned_text(int pin_error);

}  // namespace paceline

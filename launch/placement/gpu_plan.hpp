// GpuPlan: the stages of a pipeline placed on the GPUs of a machine, by bytes, before anything is
// loaded.
//
//     1. Stages whose `device` the file names stay there. A draft without a model stays on the CPU.
//     2. The target's segments go over the GPUs in their order, so that the fullest one is as empty
//        as possible. Segments run one after the other, so where GPUs are few drafts come first:
//        the target gets the remaining ones, at least one, and more only if it does not fit.
//     3. Each draft gets an unused GPU, else the one that holds least, if it fits there.
//     4. If whole segments do not fit, the plan is tried again with the largest segment split into
//        one more part, "target" into "target-1" and "target-2"; an exit stays at the end of the
//        last part.
//
// A stage with `tensor = N` or a list of devices takes a part of each of its GPUs, and is placed
// before those with one (gpu_groups.hpp).
//
// Stages that share a GPU share a process. Each process is pinned to cores of its own near its GPU,
// unless the file names cores. Pure functions of values.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/config/machine_file.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/placement/placement.hpp"

namespace paceline {

/// An estimate of the GPU memory of a process for the driver's context and code.
inline constexpr std::uint64_t kGpuContextBytes = std::uint64_t{640} << 20;

/// What the stages of a placement need, in their order.
using SizeStages = std::function<std::vector<MemoryNeed>(const Placement&)>;

struct GpuRequest {
    const GpuMachine& machine;
    std::vector<int> gpus;   // of the machine that may be used, in this order
    std::vector<int> cores;  // that processes may use, as for place()
    int layers = 0;          // of the target
    int kv_heads = 1;        // of it: no more GPUs share a stage of it
};

struct GpuPlan {
    PipelineConfig config;  // devices, processes, layers and cores written into it
    Placement placement;    // of that
    std::vector<MemoryNeed> needs;
};

/// Bytes of `gpu` that stages may have.
[[nodiscard]] std::uint64_t room_of(const MachineGpu& gpu);
/// Of `need` on all its GPUs.
[[nodiscard]] std::uint64_t gpu_bytes(const MemoryNeed& need);

/// Errors: OutOfMemory naming stage, device, the bytes needed and those that are there; those of
/// place() and check_pipeline(); BadArgument where the file names a GPU that is not among `gpus`,
/// or where GPUs cannot share a stage. OutOfMemory also says with which `tensor` it would fit.
[[nodiscard]] Result<GpuPlan> plan_gpus(const PipelineConfig& config,
                                        const GpuRequest& request,
                                        const SizeStages& size);

}  // namespace paceline

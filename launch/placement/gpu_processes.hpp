// Processes of stages that have their GPUs: which stages share one, and the cores near its GPU that it
// is pinned to.
//
// Pure functions of values.
#pragma once

#include <vector>

#include "launch/config/machine_file.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline {

/// Stages of different processes on one GPU become one process, "gpu0": a GPU's memory belongs to one.
void share_processes(PipelineConfig& config);

/// Gives each process with a GPU cores of its own near to it, a few: feeding a GPU takes little more
/// than one. One is left for each process without a GPU and for the conductor. Cores that the file names
/// stay. They are taken of `usable`; where there are not enough, or the GPU's are not known, none are
/// named and the sharing out of core_shares.hpp holds.
void pin_near_gpus(PipelineConfig& config,
                   const GpuMachine& machine,
                   const std::vector<int>& usable);

}  // namespace paceline

// Processes of stages that have their GPUs: which stages share one, and the cores near its GPU that
// it is pinned to.
//
// Pure functions of values.
#pragma once

#include <vector>

#include "launch/config/machine_file.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline {

/// Stages of different processes on one GPU become one process, "gpu0": a GPU's memory belongs to
/// one. So do all that are joined by stages on several GPUs; their process is named after the first
/// of these.
void share_processes(PipelineConfig& config);

/// Gives each process with a GPU a few cores of its own near the GPU: launching on a GPU takes
/// little more than one. One is left for each process without a GPU and for the conductor. Cores
/// that the file names stay. Cores are taken from `usable`; if there are not enough, or those near
/// the GPU are unknown, none are assigned here, and core_shares.hpp assigns them.
void pin_near_gpus(PipelineConfig& config,
                   const GpuMachine& machine,
                   const std::vector<int>& usable);

}  // namespace paceline

// Whether the GPUs that a pipeline's stages name are there.
//
// The machine is looked at only if a stage names one: the look starts the driver, and a conductor
// should hold no device. Any thread.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/pipeline_config.hpp"

namespace paceline {

struct GpuInventory {
    std::vector<std::string> names;  // by number
    std::string why_none;            // if there are none
};
[[nodiscard]] GpuInventory read_gpus();

/// Errors: BadArgument for a device that is not there, with what is; Unsupported for one that is:
/// no backend runs on it yet.
[[nodiscard]] Status check_gpus(const PipelineConfig& config, const GpuInventory& inventory);
/// The same with this machine's inventory, read if it is needed.
[[nodiscard]] Status check_gpus(const PipelineConfig& config);

}  // namespace paceline

// Whether the GPUs that a pipeline's stages, or --device, name are there.
//
// The machine is looked at only if one is named: the look starts the driver.
// Any thread.
#pragma once

#include "ipc/base/result.hpp"
#include "launch/base/device.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/load/gpu.hpp"

namespace paceline {

/// Errors: BadArgument naming the stage and the device that is not there, with what is; GPUs of a
/// list that are not of one kind; `tensor` where no plan has chosen GPUs.
[[nodiscard]] Status check_gpus(const PipelineConfig& config, const GpuInventory& inventory);
/// The same with this machine's inventory, read if it is needed.
[[nodiscard]] Status check_gpus(const PipelineConfig& config);

/// The same for --device. Also BadArgument for --exact off without a GPU, or with several.
[[nodiscard]] Status check_device(const Device& device);

}  // namespace paceline

// Checks of the options of a CUDA backend, and the messages for options, models and devices that it
// refuses.
#pragma once

#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/config.hpp"
#include "model/cuda/cuda_options.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline {

/// Errors: BadArgument (layers, slots, rows, heads, devices), Unsupported (shapes that no kernel
/// has, more devices than KV heads).
[[nodiscard]] Status check_options(const ModelConfig& config, const CudaOptions& options);

/// Device memory of a segment beside `use`: recorded graphs, one for each size of a batch. An
/// estimate, because the driver does not report the memory of a graph.
[[nodiscard]] std::uint64_t recording_bytes(const CudaOptions& options);
/// All of it.
[[nodiscard]] std::uint64_t device_bytes(const CudaOptions& options, const MemoryUse& use);

/// Errors: Unsupported for devices of one group that are not of one kind.
[[nodiscard]] Status check_alike(const CudaOptions& options,
                                 const std::vector<cuda::DeviceInfo>& devices);

/// The error for device `index` whose free memory is less than device_bytes().
[[nodiscard]] Error no_room(const CudaOptions& options,
                            int index,
                            const cuda::DeviceInfo& device,
                            const MemoryUse& use);

/// The error for a host that cannot pin this much memory.
[[nodiscard]] Error no_pinned_room(const CudaOptions& options, const MemoryUse& use);

}  // namespace paceline

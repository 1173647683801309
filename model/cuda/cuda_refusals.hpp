// What a CUDA backend is not made of, and the sentences that say why.
#pragma once

#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/config.hpp"
#include "model/cuda/cuda_options.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline {

/// Errors: BadArgument (layers, slots, rows, heads), Unsupported (shapes that no kernel has).
[[nodiscard]] Status check_options(const ModelConfig& config, const CudaOptions& options);

/// What a segment takes of a device beside `use`: recordings, one for each size of a wave, as waves
/// come. An allowance: what a recorded launch takes is the driver's secret.
[[nodiscard]] std::uint64_t recording_bytes(const CudaOptions& options);
/// All of it.
[[nodiscard]] std::uint64_t device_bytes(const CudaOptions& options, const MemoryUse& use);

/// A device whose free memory is less than device_bytes().
[[nodiscard]] Error no_room(const CudaOptions& options,
                            const cuda::DeviceInfo& device,
                            const MemoryUse& use);

/// A host that has not so much to pin.
[[nodiscard]] Error no_pinned_room(const CudaOptions& options, const MemoryUse& use);

}  // namespace paceline

// A backend on whichever device: CpuOptions say what is wanted, a Device says where.
//
// What only a CPU has (threads, cores, instruction set) does not matter on a GPU; all else is
// carried over, but for rows_max, which a GPU bounds by its kernels.
#pragma once

#include <memory>

#include "ipc/base/result.hpp"
#include "launch/base/device.hpp"
#include "model/backend.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/cuda/cuda_options.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Precondition: device.gpu.
[[nodiscard]] CudaOptions cuda_options(const CpuOptions& options, const Device& device);

/// An EAGLE draft (CpuOptions::eagle) is an EagleBackend around that of its layer.
/// Errors: those of make_cpu_backend() or make_cuda_backend(), and of check_eagle(); Unsupported
/// for a GPU in a program without CUDA.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_backend(const ModelFile& file,
                                                            const CpuOptions& options,
                                                            const Device& device);

}  // namespace paceline

// The GPUs of this machine, and the CUDA backend: the only place where a build with CUDA differs
// from one without.
//
// A library of its own (paceline_gpu), so that the rest of launch/ is compiled once for all
// programs: `paceline`, and that of the tests, which has another device.
// Any thread; a backend belongs to the thread that made it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/cuda/cuda_options.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct GpuInventory {
    std::vector<std::string> names;            // by number
    std::string why_none;                      // if there are none
    std::vector<std::uint64_t> memory = {};    // bytes, by number
    std::vector<std::string> pci_places = {};  // "0000:3b:00.0", by number; empty: not on a bus
    std::vector<std::vector<int>> peers = {};  // by number: the others whose memory it reaches
};
/// Starts the driver, but takes nothing of any device.
[[nodiscard]] GpuInventory read_gpus();

/// Whether gpu_memory() knows: not in a program without CUDA.
[[nodiscard]] bool can_size_gpus();

/// For `paceline --version`: the toolkit of the build, then a line for each device and whether our
/// code ran on it.
[[nodiscard]] std::string gpu_version_text();

/// cuda_memory_of_each(), with the allowance for recordings in the workspace; nothing in a program
/// without CUDA.
[[nodiscard]] std::vector<MemoryUse> gpu_memory(const ModelFile& file, const CudaOptions& options);

/// make_cuda_backend(); with CudaOptions::eagle an EagleBackend around it. Errors: its own;
/// Unsupported in a program without CUDA.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_gpu_backend(const ModelFile& file,
                                                                const CudaOptions& options);

}  // namespace paceline

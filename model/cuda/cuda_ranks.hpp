// The devices of a backend: checked, their memory counted before any is taken, then filled.
#pragma once

#include <memory>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/cuda/cuda_options.hpp"
#include "model/cuda/cuda_rank.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

using CudaRanks = std::vector<std::unique_ptr<CudaRank>>;

/// What each device takes of its memory, in their order; what is pinned counts to the first.
/// `options` with their layers resolved.
[[nodiscard]] std::vector<MemoryUse> cuda_uses(const ModelFile& file, const CudaOptions& options);
[[nodiscard]] MemoryUse sum_of(const std::vector<MemoryUse>& uses);

/// The devices with their weights planned; the first is the calling thread's.
/// Errors: Unsupported (an old device, devices of two kinds, an EAGLE draft on devices that do not
/// reach each other, no cuBLAS), OutOfMemory. Throws DeviceError.
[[nodiscard]] Result<CudaRanks> plan_ranks(const ModelFile& file, const CudaOptions& options);

/// Loads their weights and reserves their caches. Errors: OutOfMemory, BadFile. Throws DeviceError.
[[nodiscard]] Status load_ranks(const CudaRanks& ranks,
                                const ModelFile& file,
                                const CudaOptions& options);

}  // namespace paceline

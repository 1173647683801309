// What a backend takes of each device beside its weights: sizes and places.
//
// Pure: nothing is allocated here but a cache (CudaCache::make()).
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/config.hpp"
#include "model/cuda/batch_tables.hpp"
#include "model/cuda/cuda_options.hpp"
#include "model/cuda/cuda_rank.hpp"

namespace paceline {

/// Keys that a row can see, in whole splits of attention: positions are below it.
[[nodiscard]] int cuda_context(const ModelConfig& config, const CudaOptions& options);
/// Of batches.
[[nodiscard]] BatchLimits cuda_limits(const ModelConfig& config, const CudaOptions& options);
/// The most rows of one call of a head: logits are large.
[[nodiscard]] int head_rows_of(const BatchLimits& limits);
/// Of pinned memory: hidden states of a batch, or logits of a head's rows.
[[nodiscard]] std::uint64_t states_staging_bytes(const ModelConfig& config,
                                                 const BatchLimits& limits);

/// Gives the workspace of the device that has `part` its places after `base`, and returns its
/// bytes. `splits_gates`: CudaWeights::splits_gates().
std::uint64_t place_workspace(const ModelConfig& config,
                              const CudaOptions& options,
                              const CudaPart& part,
                              bool splits_gates,
                              std::byte* base,
                              CudaWorkspace& to);

/// Bytes that CudaForward::make() takes of the device that has `part`, and of pinned memory.
[[nodiscard]] std::uint64_t cuda_workspace_bytes(const ModelConfig& config,
                                                 const CudaOptions& options,
                                                 const CudaPart& part,
                                                 bool splits_gates);
[[nodiscard]] std::uint64_t cuda_pinned_bytes(const ModelConfig& config,
                                              const CudaOptions& options);

}  // namespace paceline

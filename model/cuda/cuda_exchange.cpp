#include "model/cuda/cuda_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "model/cuda/cuda_workspace.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kArrayAlignment = 256;

/// The places after `base`, and all of their bytes.
std::uint64_t place_exchange(const ModelConfig& config,
                             const CudaOptions& options,
                             std::byte* base,
                             CudaWorkspace& to) {
    std::uint64_t used = 0;
    const auto take = [&](auto*& pointer, int rows, int width) {
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(base + used);
        const std::uint64_t bytes =
            4 * static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(width);
        used += (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
    };
    const BatchLimits limits = cuda_limits(config, options);
    const int head_rows = head_rows_of(limits);
    const int dim = cuda::padded_inputs(config.dim);
    int q = config.heads * config.head_dim;
    if (options.adapter) q = std::max(q, options.adapter->heads * options.adapter->head_dim);
    take(to.hidden, limits.rows, config.dim);
    take(to.input, limits.rows, dim);
    take(to.squares, limits.rows, cuda::tiles_of(dim));
    take(to.mixed, limits.rows, cuda::padded_inputs(q));
    take(to.gated, limits.rows, cuda::padded_inputs(config.ffn_dim));
    take(to.turned, head_rows, dim);
    take(to.logits, head_rows, config.vocab_size);
    return used;
}

}  // namespace

std::uint64_t CudaExchange::bytes_of(const ModelConfig& config, const CudaOptions& options) {
    CudaWorkspace nowhere;
    return place_exchange(config, options, nullptr, nowhere);
}

bool CudaExchange::make(const ModelConfig& config, const CudaOptions& options, CudaExchange& to) {
    if (!cuda::PinnedMemory::allocate(bytes_of(config, options), to.memory_)) return false;
    // What is after the last input of a row stays zero.
    std::memset(to.memory_.data(), 0, to.memory_.bytes());
    place_exchange(config, options, to.memory_.data(), to.at_);
    return true;
}

}  // namespace paceline

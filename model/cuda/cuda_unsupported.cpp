#include "model/cuda/cuda_unsupported.hpp"

#include <cstdio>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "model/kernels/cuda/attention_layout.hpp"

namespace paceline {
namespace {

Error bad(std::string what) {
    return {Errc::BadArgument, std::move(what)};
}

Status check_group(int queries_per_kv) {
    if (queries_per_kv <= cuda::kAttentionGroupMax) return {};
    return Error{Errc::Unsupported,
                 fmt::format("{} query heads per KV head, at most {} are supported on a GPU",
                             queries_per_kv, cuda::kAttentionGroupMax)};
}

std::string gib(std::uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GiB",
                  static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << 30U));
    return text;
}

}  // namespace

Status check_options(const ModelConfig& config, const CudaOptions& options) {
    if (options.first_layer < 0 || options.first_layer >= options.last_layer ||
        options.last_layer > config.layers) {
        return bad(fmt::format("layers [{}, {}) are not a part of the model's {} layers",
                               options.first_layer, options.last_layer, config.layers));
    }
    if (options.kv_slots < 1)
        return bad(fmt::format("kv_slots = {}, must be at least 1", options.kv_slots));
    if (options.rows_max < 1 || options.rows_max > cuda::kGemmRowsMax)
        return bad(
            fmt::format("rows_max = {}, must be 1 to {}", options.rows_max, cuda::kGemmRowsMax));
    if (config.head_dim > cuda::kAttentionHeadDimMax)
        return Error{Errc::Unsupported,
                     fmt::format("head_dim = {}, at most {} is supported on a GPU", config.head_dim,
                                 cuda::kAttentionHeadDimMax)};
    if (Status checked = check_group(config.heads / config.kv_heads); !checked) return checked;
    if (Status checked = check_heads(config, options.heads); !checked) return checked;
    if (!options.adapter) return {};
    if (Status checked = check_adapter(config, *options.adapter); !checked) return checked;
    return check_group(options.adapter->heads / options.adapter->kv_heads);
}

std::uint64_t recording_bytes(const CudaOptions& options) {
    // For 8, 16, 32 and 64 rows, after one split of attention and after several. Batches of up to 8
    // rows have a recording for each of attention's tile counts: 1, 2 and 4. Larger batches have
    // one tile count a size (tested).
    constexpr std::uint64_t kRecordings = 2 * 6;
    constexpr std::uint64_t kLaunchesALayer = 12;  // at most (cuda_forward.hpp)
    constexpr std::uint64_t kLaunchBytes = 8192;
    if (!options.graphs) return 0;
    return kRecordings * kLaunchesALayer * kLaunchBytes *
           static_cast<std::uint64_t>(options.last_layer - options.first_layer);
}

std::uint64_t device_bytes(const CudaOptions& options, const MemoryUse& use) {
    return use.weight_bytes + use.kv_bytes + use.workspace_bytes + recording_bytes(options);
}

Error no_room(const CudaOptions& options, const cuda::DeviceInfo& device, const MemoryUse& use) {
    const std::uint64_t all = device_bytes(options, use);
    return {Errc::OutOfMemory,
            fmt::format("cuda:{} ({}) has {} free, layers [{}, {}) need {}: weights {}, keys and "
                        "values {}, workspace {}, recordings {}; use fewer layers a device, a "
                        "shorter context (-c) or a smaller --dtype",
                        options.device, device.name, gib(device.free_bytes), options.first_layer,
                        options.last_layer, gib(all), gib(use.weight_bytes), gib(use.kv_bytes),
                        gib(use.workspace_bytes), gib(recording_bytes(options)))};
}

Error no_pinned_room(const CudaOptions& options, const MemoryUse& use) {
    return {Errc::OutOfMemory, fmt::format("the host has no {} to pin for what goes to cuda:{} and "
                                           "back; free some, or raise the limit on locked memory",
                                           gib(use.pinned_bytes), options.device)};
}

}  // namespace paceline

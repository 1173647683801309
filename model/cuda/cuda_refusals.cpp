#include "model/cuda/cuda_refusals.hpp"

#include <cstdio>
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
                 std::to_string(queries_per_kv) + " query heads per KV head, at most " +
                     std::to_string(cuda::kAttentionGroupMax) + " are supported on a GPU"};
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
        return bad("layers [" + std::to_string(options.first_layer) + ", " +
                   std::to_string(options.last_layer) + ") are not a part of the model's " +
                   std::to_string(config.layers) + " layers");
    }
    if (options.kv_slots < 1)
        return bad("kv_slots = " + std::to_string(options.kv_slots) + ", must be at least 1");
    if (options.rows_max < 1 || options.rows_max > cuda::kGemmRowsMax)
        return bad("rows_max = " + std::to_string(options.rows_max) + ", must be 1 to " +
                   std::to_string(cuda::kGemmRowsMax));
    if (cuda::wave_code(options.variants) == cuda::WaveCode::NotCompiled)
        return bad("variants: no kernel is compiled for this combination (variants.hpp)");
    if (config.head_dim > cuda::kAttentionHeadDimMax)
        return Error{Errc::Unsupported,
                     "head_dim = " + std::to_string(config.head_dim) + ", at most " +
                         std::to_string(cuda::kAttentionHeadDimMax) + " is supported on a GPU"};
    if (Status checked = check_group(config.heads / config.kv_heads); !checked) return checked;
    if (Status checked = check_heads(config, options.heads); !checked) return checked;
    if (!options.adapter) return {};
    if (Status checked = check_adapter(config, *options.adapter); !checked) return checked;
    return check_group(options.adapter->heads / options.adapter->kv_heads);
}

std::uint64_t recording_bytes(const CudaOptions& options) {
    // For 8, 16, 32 and 64 rows, after one split of attention and after several. With
    // attention_rows waves of up to 8 rows have a recording for each of attention's tile counts: 1,
    // 2 and 4. Larger waves have one tile count a size, the same as without (tested).
    const std::uint64_t sizes = options.variants.attention_rows ? 6 : 4;
    const std::uint64_t recordings = 2 * sizes;
    constexpr std::uint64_t kLaunchesALayer = 9;
    constexpr std::uint64_t kLaunchBytes = 8192;
    if (!options.graphs) return 0;
    return recordings * kLaunchesALayer * kLaunchBytes *
           static_cast<std::uint64_t>(options.last_layer - options.first_layer);
}

std::uint64_t device_bytes(const CudaOptions& options, const MemoryUse& use) {
    return use.weight_bytes + use.kv_bytes + use.workspace_bytes + recording_bytes(options);
}

Error no_room(const CudaOptions& options, const cuda::DeviceInfo& device, const MemoryUse& use) {
    const std::uint64_t all = device_bytes(options, use);
    return {Errc::OutOfMemory,
            "cuda:" + std::to_string(options.device) + " (" + device.name + ") has " +
                gib(device.free_bytes) + " free, layers [" + std::to_string(options.first_layer) +
                ", " + std::to_string(options.last_layer) + ") need " + gib(all) + ": weights " +
                gib(use.weight_bytes) + ", keys and values " + gib(use.kv_bytes) + ", workspace " +
                gib(use.workspace_bytes) + ", recordings " + gib(recording_bytes(options)) +
                "; use fewer layers a device, a shorter context (-c) or a smaller --dtype"};
}

Error no_pinned_room(const CudaOptions& options, const MemoryUse& use) {
    return {Errc::OutOfMemory,
            "the host has no " + gib(use.pinned_bytes) +
                " to pin for what goes to cuda:" + std::to_string(options.device) +
                " and back; free some, or raise the limit on locked memory"};
}

}  // namespace paceline

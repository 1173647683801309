#include "model/cuda/cuda_unsupported.hpp"

#include <algorithm>
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

/// Of a group of devices, as far as no device is needed to know.
Status check_group_of_devices(const ModelConfig& config, const CudaOptions& options) {
    if (options.others.empty()) return {};
    const std::vector<int> devices = devices_of(options);
    const std::string text = device_text(options);
    for (std::size_t i = 0; i < devices.size(); ++i) {
        if (std::count(devices.begin(), devices.end(), devices[i]) > 1)
            return bad(
                fmt::format("device {}: cuda:{} twice; a part of the weights needs a GPU of "
                            "its own",
                            text, devices[i]));
    }
    constexpr std::size_t kMost = 1 + cuda::kOthersMax;
    if (devices.size() > kMost)
        return bad(fmt::format("device {}: {} GPUs, at most {} share a stage's weights", text,
                               devices.size(), kMost));
    if (devices.size() > static_cast<std::size_t>(config.kv_heads))
        return Error{Errc::Unsupported,
                     fmt::format("device {}: {} GPUs, but the model has {} KV heads: at most {} "
                                 "GPUs share a stage; more go to stages of their own",
                                 text, devices.size(), config.kv_heads, config.kv_heads)};
    if (!options.exact)
        return bad(
            fmt::format("device {} with exact = off: cuBLAS multiplies on one GPU alone", text));
    return {};
}

std::string gib(std::uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GiB",
                  static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << 30U));
    return text;
}

}  // namespace

Status check_options(const ModelConfig& config, const CudaOptions& options) {
    if (Status layers = check_layers(config, options.first_layer, options.last_layer); !layers)
        return layers;
    if (options.kv_slots < 1)
        return bad(fmt::format("kv_slots = {}, must be at least 1", options.kv_slots));
    if (options.rows_max < 1 || options.rows_max > cuda::kGemmRowsMax)
        return bad(
            fmt::format("rows_max = {}, must be 1 to {}", options.rows_max, cuda::kGemmRowsMax));
    if (Status checked = check_group_of_devices(config, options); !checked) return checked;
    if (config.head_dim > cuda::kAttentionHeadDimMax)
        return Error{Errc::Unsupported,
                     fmt::format("head_dim = {}, at most {} is supported on a GPU", config.head_dim,
                                 cuda::kAttentionHeadDimMax)};
    if (Status checked = check_group(config.heads / config.kv_heads); !checked) return checked;
    if (Status checked = check_heads(config, options.heads); !checked) return checked;
    if (options.eagle && options.first_layer != 0)
        return bad(fmt::format("an EAGLE draft's layers begin with {}, must begin with 0",
                               options.first_layer));
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

Status check_alike(const CudaOptions& options, const std::vector<cuda::DeviceInfo>& devices) {
    const std::vector<int> indices = devices_of(options);
    for (std::size_t i = 1; i < devices.size(); ++i) {
        const cuda::DeviceInfo& one = devices[i];
        if (one.name == devices.front().name && one.capability == devices.front().capability)
            continue;
        return Error{Errc::Unsupported,
                     fmt::format("device {}: cuda:{} is an {}, cuda:{} an {}; GPUs that share a "
                                 "stage are of one kind",
                                 device_text(options), indices.front(), devices.front().name,
                                 indices[i], one.name)};
    }
    return {};
}

Error no_room(const CudaOptions& options,
              int index,
              const cuda::DeviceInfo& device,
              const MemoryUse& use) {
    const std::uint64_t all = device_bytes(options, use);
    return {Errc::OutOfMemory,
            fmt::format("cuda:{} ({}) has {} free, layers [{}, {}) need {}: weights {}, keys and "
                        "values {}, workspace {}, recordings {}; use fewer layers a device, a "
                        "shorter context (-c) or a smaller --dtype",
                        index, device.name, gib(device.free_bytes), options.first_layer,
                        options.last_layer, gib(all), gib(use.weight_bytes), gib(use.kv_bytes),
                        gib(use.workspace_bytes), gib(recording_bytes(options)))};
}

Error no_pinned_room(const CudaOptions& options, const MemoryUse& use) {
    return {Errc::OutOfMemory, fmt::format("the host has no {} to pin for what goes to cuda:{} and "
                                           "back; free some, or raise the limit on locked memory",
                                           gib(use.pinned_bytes), options.device)};
}

}  // namespace paceline

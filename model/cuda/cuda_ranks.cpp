#include "model/cuda/cuda_ranks.hpp"

#include <fmt/core.h>

#include "model/cuda/cuda_exchange.hpp"
#include "model/cuda/cuda_unsupported.hpp"
#include "model/cuda/cuda_workspace.hpp"
#include "model/kernels/cuda/blas.hpp"
#include "model/kv_layers.hpp"

namespace paceline {
namespace {

constexpr int kCapabilityMin = 80;  // bf16 products

int kv_layers(const CudaOptions& options) {
    return KvLayers{options.first_layer, options.last_layer, options.skipped}.count();
}

CudaPart part_of(std::size_t rank, std::size_t ranks) {
    return {static_cast<int>(rank), static_cast<int>(ranks)};
}

MemoryUse use_of(const ModelConfig& config,
                 const CudaOptions& options,
                 const CudaPart& part,
                 const CudaWeights& weights) {
    MemoryUse use;
    use.weight_bytes = weights.bytes();
    use.kv_bytes =
        CudaCache::bytes_of(options.kv, kv_layers(options), part.of_kv_heads(config.kv_heads).count,
                            config.head_dim, options.kv_slots);
    if (options.adapter) {
        use.kv_bytes +=
            CudaCache::bytes_of(options.kv, 1, part.of_kv_heads(options.adapter->kv_heads).count,
                                options.adapter->head_dim, options.kv_slots);
    }
    use.workspace_bytes = cuda_workspace_bytes(config, options, part, weights.splits_gates());
    if (part.is_first()) use.pinned_bytes = cuda_pinned_bytes(config, options);
    return use;
}

Status check_capability(int index, const cuda::DeviceInfo& device) {
    if (device.capability >= kCapabilityMin) return {};
    return Error{Errc::Unsupported,
                 fmt::format("cuda:{} ({}) has compute capability {}.{}, at least 8.0 is needed",
                             index, device.name, device.capability / 10, device.capability % 10)};
}

/// What the devices are, if they can work together.
Result<std::vector<cuda::DeviceInfo>> look_at(const CudaOptions& options) {
    std::vector<cuda::DeviceInfo> devices;
    for (const int index : devices_of(options)) {
        devices.push_back(cuda::use_device(index));
        if (Status checked = check_capability(index, devices.back()); !checked)
            return checked.error();
    }
    if (Status checked = check_alike(options, devices); !checked) return checked.error();
    return devices;
}

}  // namespace

std::vector<MemoryUse> cuda_uses(const ModelFile& file, const CudaOptions& options) {
    std::vector<MemoryUse> uses;
    const std::size_t count = devices_of(options).size();
    for (std::size_t rank = 0; rank < count; ++rank) {
        const CudaPart part = part_of(rank, count);
        uses.push_back(
            use_of(file.config(), options, part, *CudaWeights::plan(file, options, part)));
    }
    return uses;
}

MemoryUse sum_of(const std::vector<MemoryUse>& uses) {
    MemoryUse sum;
    for (const MemoryUse& use : uses) {
        sum.weight_bytes += use.weight_bytes;
        sum.kv_bytes += use.kv_bytes;
        sum.workspace_bytes += use.workspace_bytes;
        sum.pinned_bytes += use.pinned_bytes;
    }
    return sum;
}

Result<CudaRanks> plan_ranks(const ModelFile& file, const CudaOptions& options) {
    const Result<std::vector<cuda::DeviceInfo>> devices = look_at(options);
    if (!devices) return devices.error();
    if (const std::string missing = options.exact ? "" : cuda::blas_problem(); !missing.empty())
        return Error{Errc::Unsupported, "cuBLAS is needed for exact = off: " + missing};
    const std::vector<int> indices = devices_of(options);
    const bool through_host = indices.size() > 1 && !cuda::enable_peers(indices);
    if (through_host && options.eagle)
        return Error{Errc::Unsupported,
                     fmt::format("device {}: these GPUs do not reach each other's memory; an EAGLE "
                                 "draft needs one GPU, or several that do",
                                 device_text(options))};
    CudaRanks ranks;
    for (std::size_t i = 0; i < indices.size(); ++i) {
        const CudaPart part = part_of(i, indices.size());
        const cuda::DeviceInfo& device = devices.value()[i];
        cuda::set_device(indices[i]);
        ranks.push_back(std::make_unique<CudaRank>(indices[i], part));
        ranks.back()->info = device;
        ranks.back()->through_host = through_host;
        ranks.back()->weights = CudaWeights::plan(file, options, part);
        MemoryUse& use = ranks.back()->use =
            use_of(file.config(), options, part, *ranks.back()->weights);
        if (through_host && part.is_first())
            use.pinned_bytes += CudaExchange::bytes_of(file.config(), options);
        if (device_bytes(options, use) > device.free_bytes)
            return no_room(options, indices[i], device, use);
    }
    cuda::set_device(indices.front());
    return ranks;
}

Status load_ranks(const CudaRanks& ranks, const ModelFile& file, const CudaOptions& options) {
    const ModelConfig& config = file.config();
    for (const std::unique_ptr<CudaRank>& rank : ranks) {
        cuda::set_device(rank->device);
        CudaOptions own = options;  // of this device alone, but for its part
        own.device = rank->device;
        if (options.progress)
            own.progress = [&](double loaded) {
                options.progress((rank->part.rank + loaded) / rank->part.ranks);
            };
        if (Status loaded = rank->weights->load(file, own, rank->stream); !loaded) return loaded;
        bool fits = CudaCache::make(options.kv, kv_layers(options),
                                    rank->part.of_kv_heads(config.kv_heads).count, config.head_dim,
                                    options.kv_slots, rank->stream, rank->cache);
        if (fits && options.adapter) {
            fits = CudaCache::make(
                options.kv, 1, rank->part.of_kv_heads(options.adapter->kv_heads).count,
                options.adapter->head_dim, options.kv_slots, rank->stream, rank->adapter_cache);
        }
        if (!fits) return no_room(options, rank->device, rank->info, rank->use);
    }
    cuda::set_device(ranks.front()->device);
    return {};
}

}  // namespace paceline

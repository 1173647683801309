#include "model/cpu/cpu_adapter.hpp"

#include <algorithm>
#include <utility>

namespace paceline {
namespace {

/// The target with the adapter's shape, as far as an attention sub-layer asks for it.
ModelConfig shape_of(const ModelConfig& target, const AdapterSpec& spec) {
    ModelConfig config = target;
    config.layers = kAdapterLayer + 1;
    config.heads = spec.heads;
    config.kv_heads = spec.kv_heads;
    config.head_dim = spec.head_dim;
    config.ffn_dim = 0;
    config.qkv_bias = false;
    config.qk_norm = false;
    return config;
}

}  // namespace

Result<std::unique_ptr<CpuAdapter>> CpuAdapter::make(const ModelFile& file,
                                                     const CpuOptions& options,
                                                     const PackedMatrix& whole,
                                                     const KernelTable& kernels,
                                                     ThreadTeam& team) {
    ModelConfig config = shape_of(file.config(), *options.adapter);
    Result<CpuWeights> weights = CpuWeights::load_adapter(file, options, whole, team);
    if (!weights) return weights.error();
    Result<KvStore> kv = KvStore::make(config, options.kv, KvLayers{0, 1, {}}, options.kv_slots);
    if (!kv) return kv.error();
    return std::unique_ptr<CpuAdapter>{new CpuAdapter{std::move(config), options.rows_max,
                                                      std::move(weights).value(),
                                                      std::move(kv).value(), kernels, team}};
}

CpuAdapter::CpuAdapter(ModelConfig config,
                       int rows_max,
                       CpuWeights weights,
                       KvStore kv,
                       const KernelTable& kernels,
                       ThreadTeam& team)
    : config_{std::move(config)},
      rows_max_{static_cast<std::size_t>(rows_max)},
      weights_{std::move(weights)},
      kv_{std::move(kv)},
      forward_{config_, weights_, kernels, kv_, team, kAdapterLayer, kAdapterLayer + 1, rows_max} {}

RunOutcome CpuAdapter::run(std::span<const Row> rows,
                           std::span<const float> hidden,
                           std::span<float> out,
                           const CancelToken* cancel) {
    rows_.assign(rows.begin(), rows.end());
    for (Row& row : rows_) {
        row.first = 2 * kAdapterLayer;
        row.last = row.first + 1;
        row.mask = nullptr;
        row.stack = nullptr;
    }
    std::copy(hidden.begin(), hidden.end(), out.begin());
    const auto dim = static_cast<std::size_t>(config_.dim);
    for (std::size_t first = 0; first < rows_.size(); first += rows_max_) {
        const std::size_t count = std::min(rows_max_, rows_.size() - first);
        const RunOutcome outcome = forward_.run(std::span{rows_}.subspan(first, count),
                                                out.data() + first * dim, cancel, first);
        if (outcome == RunOutcome::Cancelled) return outcome;
    }
    return RunOutcome::Done;
}

void CpuAdapter::head(const float* x, int rows, Logits logits) {
    forward_.head(weights_.heads().front(), x, rows, logits);
}

}  // namespace paceline

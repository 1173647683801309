#include "launch/placement/memory_plan.hpp"

#include <algorithm>
#include <cstdio>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "launch/load/exit_heads.hpp"
#include "launch/load/gpu.hpp"
#include "launch/load/make_backend.hpp"
#include "launch/placement/pipeline_layout.hpp"
#include "model/eagle/eagle_backend.hpp"
#include "model/eagle_spec.hpp"
#include "model/kv_layers.hpp"
#include "model/kv_layout.hpp"

namespace paceline {
namespace {

/// Code, stacks, tokenizer tables, rings: what any process of ours touches besides.
constexpr std::uint64_t kProcessBytes = 24U << 20;
/// What a GPU's driver keeps on the host in a process that uses it.
constexpr std::uint64_t kDriverBytes = 256U << 20;

std::uint64_t kv_bytes(const ModelConfig& config, KvType type, int layers, std::int32_t slots) {
    const auto rounded = static_cast<std::uint64_t>(pages_for(slots)) * kKvPageSlots;
    return kv_bytes_per_slot(config, type) * rounded * static_cast<std::uint64_t>(layers);
}

/// Activations of rows_max rows.
std::uint64_t activation_bytes(const ModelConfig& config, const CpuOptions& options) {
    const auto rows = static_cast<std::uint64_t>(options.rows_max);
    const auto dim = static_cast<std::uint64_t>(config.dim);
    const auto wide = static_cast<std::uint64_t>(config.q_dim()) +
                      static_cast<std::uint64_t>(config.kv_dim()) +
                      static_cast<std::uint64_t>(config.ffn_dim);
    return 4 * rows * (4 * dim + 3 * wide);
}

/// The logits of a batch.
std::uint64_t logits_bytes(const ModelConfig& config) {
    return std::uint64_t{4} * kVerifyRowsMax * static_cast<std::uint64_t>(config.vocab_size);
}

/// Of the last segment: the tensors of features on their way to an EAGLE draft, and the states that
/// it keeps of the layers of a batch.
std::uint64_t feature_bytes(const Placement& placement,
                            const std::optional<DraftBackend>& draft,
                            std::uint32_t rows,
                            int dim) {
    if (!draft || !draft->options.eagle || !placement.draft()) return 0;
    const EagleSpec& eagle = *draft->options.eagle;
    const EdgeSpec edge =
        feature_edge(placement.verifier(), *placement.draft(), dim, eagle.states());
    return std::uint64_t{edge.tensor_slots} * pool_stride(edge.tensor_bytes) +
           std::uint64_t{rows} * eagle.layers.size() * static_cast<std::uint64_t>(dim) *
               sizeof(float);
}

std::string whole_megabytes(std::uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.0f MB", static_cast<double>(bytes) / 1e6);
    return text;
}

}  // namespace

std::int32_t retained_slots(const PlacedStage& stage, int dim, std::int32_t kv_slots) {
    if (stage.retain_mb == 0) return 0;
    PACE_CHECK(dim > 0, "hidden states of a model without a size");
    const std::uint64_t page =
        std::uint64_t{kKvPageSlots} * sizeof(float) * static_cast<std::uint64_t>(dim);
    const std::uint64_t pages = static_cast<std::uint64_t>(stage.retain_mb) * 1'000'000 / page;
    const auto most = static_cast<std::uint64_t>(kv_slots / kKvPageSlots);
    return static_cast<std::int32_t>(std::min(pages, most)) * kKvPageSlots;
}

std::uint64_t role_batches(bool last, bool exit, bool self_draft, bool adapter) {
    std::uint64_t batches = 1;             // SegmentRunner: its layers' scratch
    if (last) ++batches;                   // FinalVerify
    if (exit) batches += adapter ? 2 : 1;  // EarlyVerify: gathered rows; ExitEvaluator: adapted
    if (self_draft) batches += adapter ? 3 : 1;  // SelfDraft: a pass; ExitAdapter: in and out
    return batches;
}

std::vector<GpuShare> MemoryNeed::on_gpus() const {
    if (!on_gpu) return {};
    if (!gpus.empty()) return gpus;
    return {{weight_bytes, kv_bytes, workspace_bytes}};
}

std::vector<std::pair<int, GpuShare>> shares_by_gpu(const Device& device, const MemoryNeed& need) {
    std::vector<std::pair<int, GpuShare>> shares;
    const std::vector<int> gpus = device.gpus();
    const std::vector<GpuShare> of_each = need.on_gpus();
    for (std::size_t g = 0; g < std::min(gpus.size(), of_each.size()); ++g)
        shares.emplace_back(gpus[g], of_each[g]);
    return shares;
}

MemoryNeed plan_backend(const ModelFile& file,
                        const CpuOptions& options,
                        const std::string& name,
                        const Device& device) {
    const ModelConfig& config = file.config();
    if (device.gpu) {
        const std::vector<MemoryUse> uses = gpu_memory(file, cuda_options(options, device));
        MemoryNeed need{
            .name = name,
            .other_bytes = kProcessBytes + uses.size() * kDriverBytes + logits_bytes(config),
            .on_gpu = true};
        for (const MemoryUse& use : uses) {
            need.weight_bytes += use.weight_bytes;
            need.kv_bytes += use.kv_bytes;
            need.workspace_bytes += use.workspace_bytes;
            need.other_bytes += use.pinned_bytes;
            if (uses.size() > 1)
                need.gpus.push_back({use.weight_bytes, use.kv_bytes, use.workspace_bytes});
        }
        if (options.eagle) need.other_bytes += eagle_kept_bytes(*options.eagle, config.dim);
        return need;
    }
    const int last = options.last_layer < 0 ? config.layers : options.last_layer;
    MemoryNeed need{.name = name};
    CpuOptions whole = options;
    whole.last_layer = last;
    need.weight_bytes = packed_bytes(file, whole);
    const KvLayers kv_layers{options.first_layer, last, options.skipped};
    need.kv_bytes = kv_bytes(config, options.kv, kv_layers.count(), options.kv_slots);
    need.other_bytes = kProcessBytes + activation_bytes(config, options) + logits_bytes(config);
    if (options.eagle) {
        const MemoryUse own = eagle_memory(*options.eagle, config.dim, options.kv_slots);
        need.weight_bytes += own.weight_bytes;
        need.other_bytes += own.workspace_bytes;
    }
    if (options.adapter) {
        ModelConfig adapter = config;  // one attention with heads of its own
        adapter.heads = options.adapter->heads;
        adapter.kv_heads = options.adapter->kv_heads;
        adapter.ffn_dim = 0;
        need.kv_bytes += kv_bytes(adapter, options.kv, 1, options.kv_slots);
        need.other_bytes += activation_bytes(adapter, options);
    }
    return need;
}

std::vector<MemoryNeed> plan_stages(const ModelFile& file,
                                    const CpuOptions& options,
                                    const Placement& placement,
                                    const std::optional<ExitConfig>& exit,
                                    const ExitParts& parts,
                                    const std::optional<DraftBackend>& draft,
                                    KvType gpu_kv,
                                    const std::optional<SelfDraftPlan>& self) {
    std::vector<MemoryNeed> needs;
    for (const PlacedStage& stage : placement.stages) {
        if (stage.role != StageRole::Segment) {
            if (!draft) {
                needs.push_back({.name = stage.name, .other_bytes = kProcessBytes});
                continue;
            }
            CpuOptions own = draft->options;
            own.rows_max = static_cast<int>(stage.rows_max);
            if (stage.device.gpu) own.kv = gpu_kv;
            needs.push_back(plan_backend(draft->file(file), own, stage.name, stage.device));
            continue;
        }
        CpuOptions own = options;
        own.rows_max = static_cast<int>(stage.rows_max);
        if (stage.device.gpu) own.kv = gpu_kv;
        own.first_layer = stage.layers.first;
        own.last_layer = stage.layers.last;
        bool evaluates = false;
        if (exit) {
            const ExitPlace place{stage.layers.last, stage.exit, stage.id == placement.verifier()};
            ExitHeads heads = exit_heads(*exit, file.config(), parts, place, {});
            evaluates = heads.options.has_value();
            own.final_head = heads.final_head;
            own.heads = std::move(heads.heads);
            own.adapter = std::move(heads.adapter);
        }
        if (self && stage.layers.first == 0) {
            own.final_head = own.final_head || self->final_head;
            own.heads.insert(own.heads.end(), self->heads.begin(), self->heads.end());
            own.adapter = self->adapter;
        }
        const bool has_adapter = own.adapter.has_value();
        MemoryNeed need = plan_backend(file, own, stage.name, stage.device);
        const int dim = file.config().dim;
        const std::uint64_t row = static_cast<std::uint64_t>(dim) * sizeof(float);
        need.retained_bytes =
            static_cast<std::uint64_t>(retained_slots(stage, dim, options.kv_slots)) * row;
        const bool last = stage.id == placement.verifier();
        need.role_bytes =
            role_batches(last, evaluates, self && stage.layers.first == 0, has_adapter) *
            stage.rows_max * row;
        (need.on_gpu ? need.workspace_bytes : need.other_bytes) +=
            need.retained_bytes + need.role_bytes;
        if (!need.gpus.empty())
            need.gpus.front().workspace_bytes += need.retained_bytes + need.role_bytes;
        if (last) need.feature_bytes = feature_bytes(placement, draft, stage.rows_max, dim);
        need.other_bytes += need.feature_bytes;
        needs.push_back(std::move(need));
    }
    return needs;
}

Status check_memory(const std::vector<MemoryNeed>& needs,
                    const std::optional<AvailableMemory>& room) {
    std::uint64_t total = 0;
    std::uint64_t kv = 0;
    std::string parts;
    for (const MemoryNeed& need : needs) {
        total += need.on_host();
        if (!need.on_gpu) kv += need.kv_bytes;
        if (need.weight_bytes == 0) continue;
        parts += (parts.empty() ? "" : "; ") + need.name + ": ";
        if (!need.on_gpu) {
            parts += "weights " + whole_megabytes(need.weight_bytes) + ", KV cache " +
                     whole_megabytes(need.kv_bytes) + ", ";
        }
        parts += "other " + whole_megabytes(need.other_bytes);
    }
    if (!room || total <= room->bytes) return {};
    std::string what = "the run needs " + whole_megabytes(total) + " of memory, there are " +
                       whole_megabytes(room->bytes) + " (" + room->whence + ") [" + parts + "]; ";
    // What helps is what the larger part is made of.
    const bool kv_helps = total - kv <= room->bytes;
    what += kv_helps ? "a smaller context (-c) needs less"
                     : "a smaller --dtype or a smaller model needs less";
    return Error{Errc::OutOfMemory, what};
}

}  // namespace paceline

#include "model/cuda/cuda_workspace.hpp"

#include <algorithm>

#include "model/cuda/cuda_eagle.hpp"
#include "model/cuda/cuda_heads.hpp"
#include "model/cuda/cuda_rows.hpp"
#include "model/kernels/cuda/attention_layout.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kArrayAlignment = 256;
/// Keys that all rows of the largest batch may see: a prompt of usual length. Batches after more
/// keys have fewer rows (512 become 256 after 4,096), which costs less than the memory would.
constexpr int kWholeBatchContext = 2048;

std::uint64_t size_of(int value) {
    return static_cast<std::uint64_t>(value);
}

/// The largest of what an attention of the target or of the adapter needs.
struct Widest {
    int q = 0;      // of all devices
    int qkv = 0;    // of this one
    int heads = 0;  // of this one
    int head_dim = 0;
};

Widest widest(const ModelConfig& config, const CudaOptions& options, const CudaPart& part) {
    Widest most;
    const auto add = [&](int heads, int kv_heads, int head_dim) {
        const int own_kv = part.of_kv_heads(kv_heads).count;
        const int own = own_kv * (heads / kv_heads);
        most.q = std::max(most.q, heads * head_dim);
        most.qkv = std::max(most.qkv, (own + 2 * own_kv) * head_dim);
        most.heads = std::max(most.heads, own);
        most.head_dim = std::max(most.head_dim, head_dim);
    };
    add(config.heads, config.kv_heads, config.head_dim);
    if (options.adapter)
        add(options.adapter->heads, options.adapter->kv_heads, options.adapter->head_dim);
    return most;
}

}  // namespace

int head_rows_of(const BatchLimits& limits) {
    return std::min(limits.rows, cuda::kBatchRows);
}

std::uint64_t states_staging_bytes(const ModelConfig& config, const BatchLimits& limits) {
    return 4 * std::max(size_of(limits.rows) * size_of(config.dim),
                        size_of(head_rows_of(limits)) * size_of(config.vocab_size));
}

int cuda_context(const ModelConfig& config, const CudaOptions& options) {
    const int keys =
        std::min(pages_for(options.kv_slots) * kKvPageSlots, std::max(config.context_length, 1));
    return cuda::attention_splits(keys) * cuda::kAttentionSplit;
}

std::uint64_t CudaCache::bytes_of(
    KvType type, int layers, int kv_heads, int head_dim, std::int32_t slots) {
    return size_of(pages_for(slots)) * size_of(layers) * size_of(kv_heads) * 2 * kKvPageSlots *
           size_of(head_dim) * cuda::cache_element_bytes(cache_type(type));
}

bool CudaCache::make(KvType type,
                     int layers,
                     int kv_heads,
                     int head_dim,
                     std::int32_t slots,
                     cuda::Stream& stream,
                     CudaCache& to) {
    if (!cuda::DeviceMemory::allocate(bytes_of(type, layers, kv_heads, head_dim, slots), to.memory))
        return false;
    to.type = cache_type(type);
    to.layers = layers;
    to.kv_heads = kv_heads;
    to.head_dim = head_dim;
    to.slots = pages_for(slots) * kKvPageSlots;
    // An unwritten key is multiplied by a weight of zero: it has to be a number.
    stream.fill(to.memory.data(), 0, to.memory.bytes());
    stream.finish();
    return true;
}

/// Two things grow with the keys that a batch's rows see, both by the split: partial sums, and what
/// the plan says of units and slots. Batches of 64 rows always fit; larger ones have room for all
/// their rows where these see kWholeBatchContext keys, and for fewer rows after longer contexts.
BatchLimits cuda_limits(const ModelConfig& config, const CudaOptions& options) {
    const int context = cuda_context(config, options);
    const auto splits = [](int rows, int keys) {
        return std::int64_t{rows} * cuda::attention_splits(keys);
    };
    return {options.rows_max,
            std::max(splits(std::min(options.rows_max, cuda::kBatchRows), context),
                     splits(options.rows_max, std::min(context, kWholeBatchContext)))};
}

std::uint64_t place_workspace(const ModelConfig& config,
                              const CudaOptions& options,
                              const CudaPart& part,
                              bool splits_gates,
                              std::byte* base,
                              CudaWorkspace& to) {
    std::uint64_t used = 0;
    const auto take = [&](auto*& pointer, std::uint64_t elements, std::uint64_t bytes_each) {
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(base + used);
        used += (elements * bytes_each + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
    };
    const auto take_input = [&](void*& pointer, std::uint64_t rows, int inputs) {
        std::byte* bytes = nullptr;
        take(bytes, rows * size_of(cuda::padded_inputs(inputs)), 4);
        pointer = bytes;
    };
    const BatchLimits limits = cuda_limits(config, options);
    const std::uint64_t rows = size_of(limits.rows);
    const Widest most = widest(config, options, part);
    take(to.hidden, rows * size_of(config.dim), 4);
    if (part.is_first()) take(to.kept, size_of(kKeptBatches) * rows * size_of(config.dim), 4);
    take_input(to.input, rows, config.dim);
    take_input(to.mixed, rows, most.q);
    take_input(to.gated, rows, config.ffn_dim);
    take(to.gates, splits_gates ? rows * size_of(part.of_outputs(config.ffn_dim).count) : 0, 4);
    take(to.squares, rows * size_of(cuda::tiles_of(cuda::padded_inputs(config.dim))), 4);
    take(to.factors, rows, 4);
    take(to.qkv, rows * size_of(most.qkv), 4);
    const bool merges = cuda_context(config, options) > cuda::kAttentionSplit;
    take(to.partials,
         static_cast<std::uint64_t>(merges ? limits.splits : 0) * size_of(most.heads) *
             size_of(cuda::attention_partial_floats(most.head_dim)),
         4);
    if (!options.exact) {
        take(to.blas, cuda::kBlasWorkspaceBytes, 1);
        take(to.products, rows * size_of(std::max(2 * config.ffn_dim, config.dim)), 4);
    }

    if (options.eagle) {
        const std::uint64_t slots = size_of(pages_for(options.kv_slots) * kKvPageSlots);
        const std::uint64_t states = options.eagle->states() * size_of(config.dim);
        take(to.features, slots * size_of(config.dim), 4);
        take(to.states, options.eagle->join.empty() ? 0 : rows * states, 4);
        take_input(to.fused, rows, CudaEagle::input_width(*options.eagle, config.dim));
        take(to.steps, CudaEagle::table_words(limits.rows), 4);
    }

    const int head_rows = head_rows_of(limits);
    take_input(to.turned, size_of(head_rows), config.dim);
    const bool residual =
        std::any_of(options.heads.begin(), options.heads.end(),
                    [](const HeadSpec& head) { return head.block == HeadBlock::Residual; });
    take(to.block, residual ? size_of(head_rows) * size_of(config.dim) : 0, 4);
    if (!part.is_first()) {
        take(to.head_rows, 1 + size_of(head_rows), 4);
        return used;
    }
    take(to.logits, size_of(head_rows) * size_of(config.vocab_size), 4);
    take(to.draws, CudaHeads::table_bytes(head_rows), 1);
    to.head_rows = reinterpret_cast<std::int32_t*>(to.draws + head_rows);
    take(to.draw_scratch,
         std::max(cuda::draw_scratch_bytes(head_rows, config.vocab_size),
                  cuda::candidate_scratch_bytes(head_rows, config.vocab_size)),
         1);
    take(to.tokens, size_of(head_rows), sizeof(std::int32_t));
    take(to.lists, size_of(head_rows), sizeof(cuda::CandidateList));
    return used;
}

std::uint64_t cuda_workspace_bytes(const ModelConfig& config,
                                   const CudaOptions& options,
                                   const CudaPart& part,
                                   bool splits_gates) {
    CudaWorkspace nowhere;
    return place_workspace(config, options, part, splits_gates, nullptr, nowhere) +
           BatchTables::device_bytes(cuda_limits(config, options)) +
           RotationTable::device_bytes(cuda_context(config, options), config.rope.dims / 2);
}

std::uint64_t cuda_pinned_bytes(const ModelConfig& config, const CudaOptions& options) {
    const BatchLimits limits = cuda_limits(config, options);
    const std::uint64_t features =
        options.eagle ? CudaEagle::staging_bytes(*options.eagle, config.dim, limits.rows) : 0;
    return states_staging_bytes(config, limits) + CudaHeads::staging_bytes(head_rows_of(limits)) +
           BatchTables::pinned_bytes(limits) + features;
}

}  // namespace paceline

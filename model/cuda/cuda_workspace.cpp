// What CudaForward and its caches take of the device: sizes, places, allocation.
#include <algorithm>

#include "model/cuda/cuda_forward.hpp"
#include "model/kernels/cuda/attention_layout.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kAlignment = 256;

std::uint64_t size_of(int value) {
    return static_cast<std::uint64_t>(value);
}

/// The largest of what an attention of the target or of the adapter needs.
struct Widest {
    int q = 0;
    int qkv = 0;
    int heads = 0;
    int head_dim = 0;
};

Widest widest(const ModelConfig& config, const CudaOptions& options) {
    Widest most{config.q_dim(), config.q_dim() + 2 * config.kv_dim(), config.heads,
                config.head_dim};
    if (options.adapter) {
        const AdapterSpec& adapter = *options.adapter;
        most.q = std::max(most.q, adapter.heads * adapter.head_dim);
        most.qkv = std::max(most.qkv, (adapter.heads + 2 * adapter.kv_heads) * adapter.head_dim);
        most.heads = std::max(most.heads, adapter.heads);
        most.head_dim = std::max(most.head_dim, adapter.head_dim);
    }
    return most;
}

}  // namespace

int CudaForward::context_of(const ModelConfig& config, const CudaOptions& options) {
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
    // A key that nobody wrote is multiplied by a weight of zero: it has to be a number.
    stream.fill(to.memory.data(), 0, to.memory.bytes());
    stream.finish();
    return true;
}

std::uint64_t CudaForward::place(const ModelConfig& config,
                                 const CudaOptions& options,
                                 std::byte* base,
                                 Workspace& to) {
    std::uint64_t used = 0;
    const auto take = [&](auto*& pointer, std::uint64_t elements, std::uint64_t bytes_each) {
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(base + used);
        used += (elements * bytes_each + kAlignment - 1) / kAlignment * kAlignment;
    };
    const auto take_input = [&](void*& pointer, int inputs) {
        std::byte* bytes = nullptr;
        take(bytes, size_of(options.rows_max) * size_of(cuda::padded_inputs(inputs)), 4);
        pointer = bytes;
    };
    const std::uint64_t rows = size_of(options.rows_max);
    const Widest most = widest(config, options);
    const int context = context_of(config, options);
    take(to.hidden, rows * size_of(config.dim), 4);
    take_input(to.input, config.dim);
    take_input(to.turned, config.dim);
    take_input(to.mixed, most.q);
    take_input(to.gated, config.ffn_dim);
    take(to.squares, rows * size_of(cuda::tiles_of(cuda::padded_inputs(config.dim))), 4);
    take(to.qkv, rows * size_of(most.qkv), 4);
    take(to.partials,
         static_cast<std::uint64_t>(cuda::attention_partials_max(options.rows_max, context)) *
             size_of(most.heads) * size_of(cuda::attention_partial_floats(most.head_dim)),
         4);
    take(to.logits, rows * size_of(config.vocab_size), 4);
    take(to.draws, rows, sizeof(cuda::DrawRow));
    take(to.draw_scratch,
         std::max(cuda::draw_scratch_bytes(options.rows_max, config.vocab_size),
                  cuda::candidate_scratch_bytes(options.rows_max, config.vocab_size)),
         1);
    take(to.tokens, rows, sizeof(std::int32_t));
    take(to.lists, rows, sizeof(cuda::CandidateList));
    return used;
}

std::uint64_t CudaForward::workspace_bytes(const ModelConfig& config, const CudaOptions& options) {
    Workspace nowhere;
    return place(config, options, nullptr, nowhere) +
           WaveTables::device_bytes(options.rows_max, context_of(config, options),
                                    config.rope.dims / 2);
}

bool CudaForward::make(const CudaOptions& options) {
    Workspace nowhere;
    const std::uint64_t bytes = place(config_, options, nullptr, nowhere);
    const std::uint64_t pinned =
        4 * size_of(rows_max_) * size_of(std::max(config_.vocab_size, config_.dim));
    if (!cuda::DeviceMemory::allocate(bytes, memory_) ||
        !cuda::PinnedMemory::allocate(pinned, pinned_) ||
        !cuda::PinnedMemory::allocate(
            size_of(rows_max_) * std::max(sizeof(cuda::DrawRow), sizeof(cuda::CandidateList)),
            draw_pinned_) ||
        !WaveTables::make(rows_max_, context_of(config_, options), rope_, tables_))
        return false;
    // What is behind the last input of a row stays zero.
    stream_.fill(memory_.data(), 0, bytes);
    stream_.finish();
    place(config_, options, memory_.data(), at_);
    return true;
}

}  // namespace paceline

// Attention of a batch over the pages of its keys, for one layer.
//
//     plain   float arithmetic for any type of cache, any head; what the other is checked against
//     mma     tensor cores, for a bf16 cache and heads of a multiple of 16: reads keys and values
//             once for all queries of a unit
//
// Row-invariant, both: the bits of a row's result depend on that row's query and the keys and
// values it sees, in the order of their positions (attention_layout.hpp); not on the other rows,
// how many there are, where keys are stored or how many blocks run. What lies in slots that a row
// does not see does not matter, as long as the keys and values of the rows of its own batch are
// finite. The two kernels do not have equal bits.
//
// Plain structs of device pointers; the caller owns all memory. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kernels/cuda/attention_layout.hpp"
#include "model/kernels/cuda/rows.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline::cuda {

enum class AttentionKernel : std::uint8_t { Plain, Mma };

struct AttentionArgs {
    const std::int32_t* plan = nullptr;  // AttentionPlan::words(), on the device
    const std::int32_t* rows =
        nullptr;               // how many the batch has: 0 ends it, whatever the plan says
    const float* q = nullptr;  // [rows][q_stride]: heads x head_dim, rotated, not scaled
    int q_stride = 0;
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    // page -> layer -> KV head -> keys [32][head_dim], values the same (16-byte aligned).
    const std::byte* cache = nullptr;
    CacheType type = CacheType::BF16;
    int layers = 0;             // of the cache
    int layer = 0;              // this one, from 0
    float* partials = nullptr;  // [header.partials][heads][attention_partial_floats(head_dim)]
    void* out = nullptr;        // [rows][out_stride]: bf16, or float where `wide`
    int out_stride = 0;
    bool wide = false;
    // As many places in the memory of other devices, which get the same as `out`.
    int others = 0;
    void* other_out[kOthersMax] = {};
};

struct AttentionLaunch {
    AttentionKernel kernel = AttentionKernel::Mma;
    int unit_rows = 1;       // that the plan was built with, or more
    int blocks = 1;          // of the grid; units beyond wait for their turn
    bool one_split = false;  // no plan has more than one split: nothing is ever merged
};

/// Whether attention_mma computes this.
[[nodiscard]] constexpr bool attention_mma_takes(CacheType type, int head_dim) {
    return type == CacheType::BF16 && head_dim % 16 == 0 && head_dim <= kAttentionHeadDimMax;
}

/// Puts attention and the merge of splits into the stream. Preconditions: heads are a multiple of
/// kv_heads, up to kAttentionGroupMax each; head_dim up to kAttentionHeadDimMax; for Mma what
/// attention_mma_takes() says. Throws DeviceError if one is broken.
void launch_attention(Stream& stream, const AttentionArgs& args, const AttentionLaunch& how);

}  // namespace paceline::cuda

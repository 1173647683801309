// One task of an attention kernel: what the plan says of it, where its numbers are, where they go.
//
// Included by attention.cu alone.
#pragma once

#include <limits>

#include "model/kernels/cuda/attention.hpp"
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm/gemm_finish.cuh"

namespace paceline::cuda::attention {

inline constexpr int kThreads = kAttentionSplit;  // a key each, a page for each warp
inline constexpr float kNever = -std::numeric_limits<float>::infinity();

/// What the kernels get.
struct KernelArgs {
    AttentionArgs call;
    float scale;         // of scores
    int group;           // query heads of a KV head
    int partial_floats;  // of a head
};

struct Plan {
    const AttentionHeader* header;
    const AttentionUnit* units;
    const AttentionRow* rows;
    const std::int32_t* merges;
    const std::int32_t* slots;
};
PACE_DEVICE Plan plan_of(const std::int32_t* words) {
    const auto* header = reinterpret_cast<const AttentionHeader*>(words);
    return {header, reinterpret_cast<const AttentionUnit*>(words + header->units_at),
            reinterpret_cast<const AttentionRow*>(words + header->rows_at),
            words + header->merges_at, words + header->slots_at};
}

/// Whether the batch was stopped. Another stream may be setting its rows to 0: all threads of the
/// block take what the first one saw, by way of `seen` in shared memory, which nothing else uses.
PACE_DEVICE bool stopped(const KernelArgs& args, int* seen) {
    if (thread_index() == 0) *seen = *args.call.rows;
    sync_block();
    return *seen == 0;
}

/// A unit and a KV head; its queries are those of its rows, row by row.
struct Task {
    AttentionUnit unit;
    int kv_head;
    int queries;
};
PACE_DEVICE Task task_of(const KernelArgs& args, const Plan& plan, int index) {
    const AttentionUnit unit = plan.units[index / args.call.kv_heads];
    return {unit, index % args.call.kv_heads, unit.rows * args.group};
}
PACE_DEVICE int row_of(const KernelArgs& args, const Task& task, int query) {
    return task.unit.first_row + query / args.group;
}
PACE_DEVICE int head_of(const KernelArgs& args, const Task& task, int query) {
    return task.kv_head * args.group + query % args.group;
}
/// How many keys of the unit's split a row sees.
PACE_DEVICE int seen_keys(const Plan& plan, const Task& task, int row) {
    const int keys = plan.rows[row].keys - task.unit.split * kAttentionSplit;
    return keys < kAttentionSplit ? keys : kAttentionSplit;
}

PACE_DEVICE const float* query_at(const KernelArgs& args, int row, int head) {
    return args.call.q +
           static_cast<std::size_t>(row) * static_cast<std::size_t>(args.call.q_stride) +
           static_cast<std::size_t>(head * args.call.head_dim);
}
/// Where the key in `slot` begins, in numbers; its value is `value_offset()` after it.
PACE_DEVICE std::size_t key_at(const AttentionArgs& call, int slot, int kv_head) {
    const int page = slot / kAttentionBlock;
    const auto head_page = (static_cast<std::size_t>(page) * static_cast<std::size_t>(call.layers) +
                            static_cast<std::size_t>(call.layer)) *
                               static_cast<std::size_t>(call.kv_heads) +
                           static_cast<std::size_t>(kv_head);
    const int row = 2 * kAttentionBlock;
    return (head_page * row + static_cast<std::size_t>(slot % kAttentionBlock)) *
           static_cast<std::size_t>(call.head_dim);
}
PACE_DEVICE int value_offset(const AttentionArgs& call) {
    return kAttentionBlock * call.head_dim;
}

PACE_DEVICE float* partial_at(const KernelArgs& args, int partial, int head) {
    return args.call.partials +
           (static_cast<std::size_t>(partial) * static_cast<std::size_t>(args.call.heads) +
            static_cast<std::size_t>(head)) *
               static_cast<std::size_t>(args.partial_floats);
}

PACE_DEVICE void put_out(const AttentionArgs& call, int row, int head, int dim, float value) {
    const std::size_t at =
        static_cast<std::size_t>(row) * static_cast<std::size_t>(call.out_stride) +
        static_cast<std::size_t>(head * call.head_dim + dim);
    if (call.wide) {
        static_cast<float*>(call.out)[at] = value;
        put_others(call.other_out, call.others,
                   [&](void* out) { static_cast<float*>(out)[at] = value; });
    } else {
        const std::uint16_t bits = float_to_bf16(value);
        static_cast<std::uint16_t*>(call.out)[at] = bits;
        put_others(call.other_out, call.others,
                   [&](void* out) { static_cast<std::uint16_t*>(out)[at] = bits; });
    }
}

/// What a split says of one dimension of a query: the result if there is but one split.
struct SplitResult {
    float value;  // weighted sum
    float maximum;
    float sum;  // of the weights
};
/// Where the results of a query go.
struct Target {
    int row;
    int head;
    int partial;  // of this split; negative if the row has but one
};
PACE_DEVICE Target target_of(const KernelArgs& args,
                             const Plan& plan,
                             const Task& task,
                             int query) {
    const int row = row_of(args, task, query);
    const int first = plan.rows[row].partial;
    return {row, head_of(args, task, query), first < 0 ? -1 : first + task.unit.split};
}
PACE_DEVICE void put_split(const KernelArgs& args,
                           const Target& target,
                           int dim,
                           const SplitResult& result) {
    if (target.partial < 0)
        return put_out(args.call, target.row, target.head, dim, result.value / result.sum);
    float* partial = partial_at(args, target.partial, target.head);
    partial[dim] = result.value;
    if (dim == 0) {
        partial[args.call.head_dim] = result.maximum;
        partial[args.call.head_dim + 1] = result.sum;
    }
}

/// put_split() of four dimensions that follow one another, the first a multiple of four: partials
/// and rows of 16-bit results begin at a multiple of 16 and of 8 bytes.
PACE_DEVICE void put_four(const KernelArgs& args,
                          const Target& target,
                          int dim,
                          const float (&values)[4],
                          float maximum,
                          float sum) {
    if (target.partial >= 0) {
        float* partial = partial_at(args, target.partial, target.head);
        *reinterpret_cast<Words4*>(partial + dim) = {bits_of(values[0]), bits_of(values[1]),
                                                     bits_of(values[2]), bits_of(values[3])};
        if (dim != 0) return;
        partial[args.call.head_dim] = maximum;
        partial[args.call.head_dim + 1] = sum;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
        put_out(args.call, target.row, target.head, dim + k, values[k] / sum);
}

}  // namespace paceline::cuda::attention

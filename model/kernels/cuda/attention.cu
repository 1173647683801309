// Attention of a batch: a block takes one unit of the plan and one KV head at a time.
//
//     plain   a thread per key for the scores, a thread per dimension for the values, query after
//             query; sums over dimensions and over positions ascending, one fma each
//     mma     tensor cores, all queries of the unit at once (attention_mma.cuh)
//     merge   of a row's splits, in their order; a row with one split needs none and skips it
//
// Ladder: (1) plain, (2) mma. Next would be copies into shared memory one unit ahead.
#include <cmath>

#include "model/kernels/cuda/attention.hpp"
#include "model/kernels/cuda/attention_mma.cuh"
#include "model/kernels/cuda/attention_task.cuh"
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/launch.cuh"

namespace paceline::cuda {
namespace {

using namespace attention;  // attention_task.cuh, attention_mma.cuh

template <CacheType kType>
PACE_DEVICE float cached(const std::byte* cache, std::size_t at) {
    if constexpr (kType == CacheType::F32) {
        return reinterpret_cast<const float*>(cache)[at];
    } else {
        const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(cache)[at];
        return kType == CacheType::F16 ? half_to_float(bits) : bf16_to_float(bits);
    }
}

PACE_DEVICE float warp_maximum(float x) {
    for (int mask = 16; mask > 0; mask /= 2) x = maximum(x, shuffle_xor(x, mask));
    return x;
}
PACE_DEVICE float warp_sum(float x) {
    for (int mask = 16; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

constexpr int kPlainRowsAt = kAttentionHeadDimMax + kAttentionSplit + 2 * kAttentionBlocks;
constexpr std::size_t kPlainSharedBytes = sizeof(float) * (kPlainRowsAt + 1);

template <CacheType kType>
PACE_DEVICE void attend_plain(const KernelArgs& args,
                              const Plan& plan,
                              const Task& task,
                              int query) {
    auto* q = shared_memory<float>(0);
    float* weights = q + kAttentionHeadDimMax;
    float* maxima = weights + kAttentionSplit;
    float* sums = maxima + kAttentionBlocks;
    const AttentionArgs& call = args.call;
    const std::int32_t* slots = plan.slots + task.unit.slots_at;
    const int row = row_of(args, task, query);
    const int seen = seen_keys(plan, task, row);
    const int key = thread_index();

    const float* from = query_at(args, row, head_of(args, task, query));
    for (int d = key; d < call.head_dim; d += kThreads) q[d] = from[d];
    sync_block();
    float score = kNever;
    if (key < seen) {
        const std::size_t at = key_at(call, slots[key], task.kv_head);
        float dot = 0.0f;
        for (int d = 0; d < call.head_dim; ++d)
            dot = fma(cached<kType>(call.cache, at + static_cast<std::size_t>(d)), q[d], dot);
        score = dot * args.scale;
    }
    const float warp_best = warp_maximum(score);
    if (lane() == 0) maxima[warp()] = warp_best;
    sync_block();
    const float best = maximum(maximum(maxima[0], maxima[1]), maximum(maxima[2], maxima[3]));
    const float weight = key < seen ? exp(score - best) : 0.0f;
    const float weight_sum = warp_sum(weight);
    weights[key] = weight;
    if (lane() == 0) sums[warp()] = weight_sum;
    sync_block();
    const float sum = ((sums[0] + sums[1]) + sums[2]) + sums[3];
    for (int d = key; d < call.head_dim; d += kThreads) {
        const auto offset = static_cast<std::size_t>(value_offset(call) + d);
        float value = 0.0f;
        for (int p = 0; p < seen; ++p) {
            const std::size_t at = key_at(call, slots[p], task.kv_head) + offset;
            value = fma(weights[p], cached<kType>(call.cache, at), value);
        }
        put_split(args, target_of(args, plan, task, query), d, {value, best, sum});
    }
    sync_block();
}

template <CacheType kType>
PACE_KERNEL void attention_plain(KernelArgs args) {
    wait_for_previous();
    let_next_start();
    const Plan plan = plan_of(args.call.plan);
    const int tasks = plan.header->units * args.call.kv_heads;
    if (stopped(args, shared_memory<int>(0) + kPlainRowsAt)) return;
    for (int index = block_x(); index < tasks; index += grid_x()) {
        const Task task = task_of(args, plan, index);
        for (int query = 0; query < task.queries; ++query)
            attend_plain<kType>(args, plan, task, query);
    }
}

/// A thread per number of the result.
PACE_KERNEL void merge_splits(KernelArgs args) {
    wait_for_previous();
    let_next_start();
    const Plan plan = plan_of(args.call.plan);
    const int dims = args.call.head_dim;
    const int numbers = args.call.heads * dims;
    if (*args.call.rows == 0) return;  // no barrier follows: each thread may see what it sees
    for (int i = block_x() * kThreads + thread_index(); i < plan.header->merges * numbers;
         i += grid_x() * kThreads) {
        const int row = plan.merges[i / numbers];
        const int head = i % numbers / dims;
        const int dim = i % dims;
        const int first = plan.rows[row].partial;
        const int splits = (plan.rows[row].keys + kAttentionSplit - 1) / kAttentionSplit;
        float best = kNever;
#pragma unroll 4
        for (int s = 0; s < splits; ++s)
            best = maximum(best, partial_at(args, first + s, head)[dims]);
        float value = 0.0f;
        float sum = 0.0f;
#pragma unroll 4
        for (int s = 0; s < splits; ++s) {
            const float* partial = partial_at(args, first + s, head);
            const float factor = exp(partial[dims] - best);
            value = fma(partial[dim], factor, value);
            sum = fma(partial[dims + 1], factor, sum);
        }
        put_out(args.call, row, head, dim, value / sum);
    }
}

using Kernel = void (*)(KernelArgs);

Kernel plain_kernel(CacheType type) {
    switch (type) {
        case CacheType::F32:
            return attention_plain<CacheType::F32>;
        case CacheType::F16:
            return attention_plain<CacheType::F16>;
        case CacheType::BF16:
            break;
    }
    return attention_plain<CacheType::BF16>;
}

struct Chosen {
    Kernel kernel;
    std::size_t shared_bytes;
};
template <int kTiles>
Chosen mma_kernel(int blocks) {
    switch (blocks) {
        case 1:
            return {attention_mma<kTiles, 1>, MmaShared<kTiles, 1>::kBytes};
        case 2:
            return {attention_mma<kTiles, 2>, MmaShared<kTiles, 2>::kBytes};
        case 3:
            return {attention_mma<kTiles, 3>, MmaShared<kTiles, 3>::kBytes};
        default:
            return {attention_mma<kTiles, 4>, MmaShared<kTiles, 4>::kBytes};
    }
}
Chosen choose(const AttentionArgs& args, const AttentionLaunch& how) {
    if (how.kernel == AttentionKernel::Plain) return {plain_kernel(args.type), kPlainSharedBytes};
    const int blocks = (args.head_dim + kDims - 1) / kDims;
    switch (attention_tiles(how.unit_rows, args.heads / args.kv_heads)) {
        case 1:
            return mma_kernel<1>(blocks);
        case 2:
            return mma_kernel<2>(blocks);
        default:
            return mma_kernel<4>(blocks);
    }
}

void check(const AttentionArgs& args, const AttentionLaunch& how) {
    const bool heads = args.kv_heads > 0 && args.heads % args.kv_heads == 0 &&
                       args.heads / args.kv_heads <= kAttentionGroupMax;
    if (!heads || args.head_dim < 1 || args.head_dim > kAttentionHeadDimMax || how.blocks < 1)
        throw DeviceError("attention: no kernel for these heads");
    if (how.kernel == AttentionKernel::Plain) return;
    const int queries = how.unit_rows * (args.heads / args.kv_heads);
    if (!attention_mma_takes(args.type, args.head_dim) ||
        queries > kAttentionTilesMax * kAttentionTile)
        throw DeviceError("attention: the tensor-core kernel does not take this");
}

}  // namespace

void launch_attention(Stream& stream, const AttentionArgs& args, const AttentionLaunch& how) {
    check(args, how);
    KernelArgs kernel_args;
    kernel_args.call = args;
    kernel_args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.head_dim)));
    kernel_args.group = args.heads / args.kv_heads;
    kernel_args.partial_floats = attention_partial_floats(args.head_dim);

    const Chosen chosen = choose(args, how);
    LaunchShape shape;
    shape.blocks_x = how.blocks;
    shape.threads = kThreads;
    shape.shared_bytes = chosen.shared_bytes;
    shape.overlaps_previous = true;
    launch(stream, shape, chosen.kernel, kernel_args);
    if (how.one_split) return;
    shape.shared_bytes = 0;
    launch(stream, shape, merge_splits, kernel_args);
}

}  // namespace paceline::cuda

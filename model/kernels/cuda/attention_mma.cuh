// Attention on tensor cores: the kernel and its steps.
//
// A warp takes a page of the split. With g = lane / 4 and t = lane % 4:
//
//     scores  A = keys g, g+8 (+16) of the page, B = query g of a tile; a lane holds dimensions
//             8t .. 8t+7 of each 32, the same ones on both sides
//     values  A = dimensions 8g .. 8g+7 of each 64, B = weights of query g; a lane holds keys
//             2t, 2t+1, 2t+8, 2t+9 (+16)
//
// so that every load is 16 bytes of whole sectors, straight from the page into registers, and none
// waits for another. All pages of a split share its greatest score; the four sums of values are
// added in the order of the pages.
//
// What is rounded: queries to bf16 (the factor 1 / sqrt(head_dim) goes to the scores, in float, so
// that a query which is a bf16 number is not rounded at all) and weights to bf16. The weights' sum
// is that of the rounded ones: they add up to one, and equal values give that value.
//
// Included by attention.cu alone.
#pragma once

#include "model/kernels/cuda/attention_task.cuh"
#include "model/kernels/cuda/device.cuh"

namespace paceline::cuda::attention {

inline constexpr int kDims = 64;  // dimensions of a head at a time

/// Of a query, over all pages of the split.
struct Total {
    float maximum;  // score
    float sum;      // of the weights
};

/// Where what a block shares lies. Results of a split take the place of the queries.
template <int kTiles, int kBlocks>
struct MmaShared {
    static constexpr int kQueries = kTiles * kAttentionTile;
    static constexpr int kQueryWords = 32 * kBlocks + 16;  // two rows of queries meet in no bank
    static constexpr int kWeightWords = kAttentionBlock / 2 + 4;
    static constexpr int kResultWords = kDims + 4;
    static constexpr int kFirst = kQueries * kQueryWords;
    static constexpr int kResults = kAttentionBlocks * kQueries * kResultWords;
    static constexpr int kWeightsAt = kFirst > kResults ? kFirst : kResults;
    static constexpr int kMaximaAt = kWeightsAt + kAttentionBlocks * kQueries * kWeightWords;
    static constexpr int kSumsAt = kMaximaAt + kAttentionBlocks * kQueries;
    static constexpr int kSeenAt = kSumsAt + kAttentionBlocks * kQueries;
    static constexpr int kRowsAt = kSeenAt + kQueries;
    static constexpr int kTargetsAt = kRowsAt + 1;
    static constexpr int kTargetWords = static_cast<int>(sizeof(Target)) / 4;
    static constexpr int kTotalsAt = kTargetsAt + kQueries * kTargetWords;
    static constexpr int kBytes = (kTotalsAt + 2 * kQueries) * 4;
    static_assert(kBytes <= 48 * 1024, "more must be asked for");

    PACE_DEVICE static std::uint32_t* words(int at) { return shared_memory<std::uint32_t>(0) + at; }
    PACE_DEVICE static std::uint32_t* query(int i) { return words(i * kQueryWords); }
    PACE_DEVICE static std::uint32_t* result(int page, int i) {
        return words((page * kQueries + i) * kResultWords);
    }
    PACE_DEVICE static std::uint32_t* weights(int page, int i) {
        return words(kWeightsAt + (page * kQueries + i) * kWeightWords);
    }
    PACE_DEVICE static float* maxima(int page) {
        return shared_memory<float>(0) + kMaximaAt + page * kQueries;
    }
    PACE_DEVICE static float* sums(int page) {
        return shared_memory<float>(0) + kSumsAt + page * kQueries;
    }
    PACE_DEVICE static int* seen() { return shared_memory<int>(0) + kSeenAt; }
    PACE_DEVICE static int* rows() { return shared_memory<int>(0) + kRowsAt; }
    PACE_DEVICE static Target& target(int i) {
        return reinterpret_cast<Target*>(words(kTargetsAt))[i];
    }
    PACE_DEVICE static Total& total(int i) { return reinterpret_cast<Total*>(words(kTotalsAt))[i]; }
};

/// The same eight dimensions of each 64 (values) or of each 32 (keys), of one slot.
PACE_DEVICE Words4 page_words(const AttentionArgs& call, int slot, std::size_t at, int dim) {
    // A key that no row of the unit sees counts as zeros, whatever lies there.
    if (slot < 0 || dim >= call.head_dim) return Words4{0, 0, 0, 0};
    const auto* from = reinterpret_cast<const std::uint16_t*>(call.cache) + at + dim;
    // Not load_streamed(): the kernel before writes into these pages while this one begins.
    return *reinterpret_cast<const Words4*>(from);
}

/// words[block][4 j + i]: key lane/4 + 8 i of the page, dimensions 64 block + 32 j + 8 (lane%4) ...
template <int kBlocks>
PACE_DEVICE void load_keys(const AttentionArgs& call,
                           const Task& task,
                           int page_slots,
                           Words4 (&words)[kBlocks][8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int slot = shuffle(page_slots, lane() / 4 + 8 * i);
        const std::size_t at = key_at(call, slot < 0 ? 0 : slot, task.kv_head);
#pragma unroll
        for (int k = 0; k < 2 * kBlocks; ++k) {
            words[k / 2][4 * (k % 2) + i] = page_words(call, slot, at, 32 * k + lane() % 4 * 8);
        }
    }
}

/// words[block][4 s + i]: key 16 s + 2 (lane%4) + {0, 1, 8, 9}[i], dimensions 64 block + 8
/// (lane/4).
template <int kBlocks>
PACE_DEVICE void load_values(const AttentionArgs& call,
                             const Task& task,
                             int page_slots,
                             int first_block,
                             Words4 (&words)[kBlocks][8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int key = i / 4 * 16 + lane() % 4 * 2 + i % 2 + i % 4 / 2 * 8;
        const int slot = shuffle(page_slots, key);
        const std::size_t at = key_at(call, slot < 0 ? 0 : slot, task.kv_head) +
                               static_cast<std::size_t>(value_offset(call));
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
            const int dim = (first_block + block) * kDims + lane() / 4 * 8;
            words[block][i] = page_words(call, slot, at, dim);
        }
    }
}

/// Queries as bf16, what each sees and where its results go, into shared memory; a query that is
/// not there is zeros and sees none. All of a thread's words are loaded before the first is used.
template <int kTiles, int kBlocks>
PACE_DEVICE void share_queries(const KernelArgs& args, const Plan& plan, const Task& task) {
    using Shared = MmaShared<kTiles, kBlocks>;
    constexpr int kOfAWarp = Shared::kQueries / kAttentionBlocks;
    const int dims = args.call.head_dim;
    float loaded[kOfAWarp][kBlocks][2] = {};
#pragma unroll
    for (int i = 0; i < kOfAWarp; ++i) {
        const int query = warp() + i * kAttentionBlocks;
        if (query >= task.queries) break;
        const float* from = query_at(args, row_of(args, task, query), head_of(args, task, query));
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
            const int dim = 2 * (32 * block + lane());
            if (dim >= dims) break;
            loaded[i][block][0] = from[dim];
            loaded[i][block][1] = from[dim + 1];
        }
    }
    for (int query = thread_index(); query < Shared::kQueries; query += kThreads) {
        const bool there = query < task.queries;
        Shared::seen()[query] = there ? seen_keys(plan, task, row_of(args, task, query)) : 0;
        if (there) Shared::target(query) = target_of(args, plan, task, query);
    }
#pragma unroll
    for (int i = 0; i < kOfAWarp; ++i) {
        std::uint32_t* to = Shared::query(warp() + i * kAttentionBlocks);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block)
            to[32 * block + lane()] = two_bf16(loaded[i][block][0], loaded[i][block][1]);
    }
}

/// scores[m][n]: keys 16 m + lane/4 (+8) of the page, queries 8 n + 2 (lane%4) (+1).
template <int kTiles, int kBlocks>
PACE_DEVICE void score_page(const Task& task,
                            const Words4 (&keys)[kBlocks][8],
                            float (&scores)[2][kTiles][4]) {
    using Shared = MmaShared<kTiles, kBlocks>;
#pragma unroll
    for (int k = 0; k < 2 * kBlocks; ++k) {
        const Words4* key = &keys[k / 2][4 * (k % 2)];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
            if (n * kAttentionTile >= task.queries) break;
            const Words4 q = *reinterpret_cast<const Words4*>(
                Shared::query(n * kAttentionTile + lane() / 4) + 16 * k + lane() % 4 * 4);
            const std::uint32_t low[2] = {q.x, q.y};
            const std::uint32_t high[2] = {q.z, q.w};
#pragma unroll
            for (int m = 0; m < 2; ++m) {
                const Words4& a = key[2 * m];
                const Words4& b = key[2 * m + 1];
                const std::uint32_t first[4] = {a.x, b.x, a.y, b.y};
                mma_bf16(scores[m][n], first, low);
                const std::uint32_t second[4] = {a.z, b.z, a.w, b.w};
                mma_bf16(scores[m][n], second, high);
            }
        }
    }
}

/// Over the lanes that hold the same queries.
template <class Join>
PACE_DEVICE float over_keys(float x, Join join) {
    for (int mask = 4; mask < 32; mask *= 2) x = join(x, shuffle_xor(x, mask));
    return x;
}

/// Scales and masks; leaves the greatest score of each query in maxima().
template <int kTiles, int kBlocks>
PACE_DEVICE void mask_scores(const KernelArgs& args, float (&scores)[2][kTiles][4]) {
    using Shared = MmaShared<kTiles, kBlocks>;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
        const int n = i / 2;
        const int query = n * kAttentionTile + lane() % 4 * 2 + i % 2;
        const int seen = Shared::seen()[query];
        float best = kNever;
#pragma unroll
        for (int k = 0; k < 4; ++k) {  // of this lane's four keys
            float& score = scores[k / 2][n][k % 2 * 2 + i % 2];
            const int key = warp() * kAttentionBlock + lane() / 4 + 8 * k;
            score = key < seen ? score * args.scale : kNever;
            best = maximum(best, score);
        }
        best = over_keys(best, [](float a, float b) { return maximum(a, b); });
        if (lane() / 4 == 0) Shared::maxima(warp())[query] = best;
    }
}

template <int kTiles, int kBlocks>
PACE_DEVICE float split_maximum(int query) {
    using Shared = MmaShared<kTiles, kBlocks>;
    return maximum(maximum(Shared::maxima(0)[query], Shared::maxima(1)[query]),
                   maximum(Shared::maxima(2)[query], Shared::maxima(3)[query]));
}

/// Scores become weights, as bf16 in shared memory, and their sums.
template <int kTiles, int kBlocks>
PACE_DEVICE void weigh_scores(const float (&scores)[2][kTiles][4]) {
    using Shared = MmaShared<kTiles, kBlocks>;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
        const int n = i / 2;
        const int query = n * kAttentionTile + lane() % 4 * 2 + i % 2;
        const float best = split_maximum<kTiles, kBlocks>(query);
        auto* weights = reinterpret_cast<std::uint16_t*>(Shared::weights(warp(), query));
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float score = scores[k / 2][n][k % 2 * 2 + i % 2];
            // Asked for by name: a query that is not there has no greatest score either.
            const std::uint16_t weight = score == kNever ? 0 : float_to_bf16(exp(score - best));
            weights[lane() / 4 + 8 * k] = weight;
            sum += bf16_to_float(weight);
        }
        sum = over_keys(sum, [](float a, float b) { return a + b; });
        if (lane() / 4 == 0) Shared::sums(warp())[query] = sum;
    }
}

PACE_DEVICE std::uint32_t word_of(const Words4& words, int i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}
PACE_DEVICE std::uint32_t two_low(std::uint32_t a, std::uint32_t b) {
    return (a & 0xFFFFU) | (b << 16U);
}
PACE_DEVICE std::uint32_t two_high(std::uint32_t a, std::uint32_t b) {
    return (a >> 16U) | (b & 0xFFFF0000U);
}

/// This page's part of the weighted values of 64 dimensions, into result().
template <int kTiles, int kBlocks>
PACE_DEVICE void weigh_values(const Task& task, const Words4 (&values)[8]) {
    using Shared = MmaShared<kTiles, kBlocks>;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
        if (n * kAttentionTile >= task.queries) break;
        const std::uint32_t* weights =
            Shared::weights(warp(), n * kAttentionTile + lane() / 4) + lane() % 4;
        float sums[4][4] = {};  // dimensions 2m, 2m+1 of the lane's eight: [m]
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            const std::uint32_t b[2] = {weights[8 * s], weights[8 * s + 4]};
            const Words4* v = &values[4 * s];
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                const std::uint32_t w[4] = {word_of(v[0], m), word_of(v[1], m), word_of(v[2], m),
                                            word_of(v[3], m)};
                const std::uint32_t a[4] = {two_low(w[0], w[1]), two_high(w[0], w[1]),
                                            two_low(w[2], w[3]), two_high(w[2], w[3])};
                mma_bf16(sums[m], a, b);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int m = i / 2 * 2;
            const int c = i % 2;
            const int query = n * kAttentionTile + lane() % 4 * 2 + c;
            auto* to = reinterpret_cast<Words4*>(Shared::result(warp(), query) + lane() / 4 * 8);
            to[i / 2] = {bits_of(sums[m][c]), bits_of(sums[m][c + 2]), bits_of(sums[m + 1][c]),
                         bits_of(sums[m + 1][c + 2])};
        }
    }
}

/// The greatest score and the sum of the weights of each query, once for all its dimensions.
template <int kTiles, int kBlocks>
PACE_DEVICE void join_pages(const Task& task) {
    using Shared = MmaShared<kTiles, kBlocks>;
    for (int query = thread_index(); query < task.queries; query += kThreads) {
        float sum = Shared::sums(0)[query];
#pragma unroll
        for (int page = 1; page < kAttentionBlocks; ++page) sum += Shared::sums(page)[query];
        Shared::total(query) = {split_maximum<kTiles, kBlocks>(query), sum};
    }
}

/// The pages' parts, added in their order: four dimensions of a query a thread.
template <int kTiles, int kBlocks>
PACE_DEVICE void put_results(const KernelArgs& args, const Task& task, int block) {
    using Shared = MmaShared<kTiles, kBlocks>;
    constexpr int kOfAQuery = kDims / 4;
#pragma unroll 2
    for (int i = thread_index(); i < task.queries * kOfAQuery; i += kThreads) {
        const int query = i / kOfAQuery;
        const int within = i % kOfAQuery * 4;
        const int dim = block * kDims + within;
        if (dim >= args.call.head_dim) continue;
        float values[4] = {};
#pragma unroll
        for (int page = 0; page < kAttentionBlocks; ++page) {
            const Words4 part =
                *reinterpret_cast<const Words4*>(Shared::result(page, query) + within);
            const float parts[4] = {float_of(part.x), float_of(part.y), float_of(part.z),
                                    float_of(part.w)};
#pragma unroll
            for (int k = 0; k < 4; ++k) values[k] = page == 0 ? parts[k] : values[k] + parts[k];
        }
        const Total total = Shared::total(query);
        const Target& target = Shared::target(query);
        put_four(args, target, dim, values, total.maximum, total.sum);
    }
}

template <int kTiles, int kBlocks>
PACE_DEVICE void attend_mma(const KernelArgs& args, const Plan& plan, const Task& task) {
    constexpr bool kAllAtOnce = kBlocks <= 2;  // as much as registers hold
    const int key = thread_index();            // of the split: a page for each warp
    const int page_slots = key < task.unit.keys ? plan.slots[task.unit.slots_at + key] : -1;
    Words4 keys[kBlocks][8];
    Words4 values[kAllAtOnce ? kBlocks : 1][8];
    load_keys(args.call, task, page_slots, keys);
    if constexpr (kAllAtOnce) load_values(args.call, task, page_slots, 0, values);
    share_queries<kTiles, kBlocks>(args, plan, task);
    sync_block();

    float scores[2][kTiles][4] = {};
    score_page<kTiles, kBlocks>(task, keys, scores);
    mask_scores<kTiles, kBlocks>(args, scores);
    sync_block();  // from here on queries are not read
    weigh_scores<kTiles, kBlocks>(scores);
    sync_block();  // of the sums of all pages
    join_pages<kTiles, kBlocks>(task);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
        if constexpr (!kAllAtOnce) load_values(args.call, task, page_slots, block, values);
        weigh_values<kTiles, kBlocks>(task, values[kAllAtOnce ? block : 0]);
        sync_block();
        put_results<kTiles, kBlocks>(args, task, block);
        sync_block();
    }
}

template <int kTiles, int kBlocks>
PACE_KERNEL void attention_mma(KernelArgs args) {
    wait_for_previous();
    let_next_start();
    const Plan plan = plan_of(args.call.plan);
    const int tasks = plan.header->units * args.call.kv_heads;
    if (stopped(args, MmaShared<kTiles, kBlocks>::rows())) return;
    for (int index = block_x(); index < tasks; index += grid_x())
        attend_mma<kTiles, kBlocks>(args, plan, task_of(args, plan, index));
}

}  // namespace paceline::cuda::attention

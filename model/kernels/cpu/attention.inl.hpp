// Attention kernels over KV pages, written once over a Simd type (simd_*.hpp).
//
// Keys lie transposed in their page ([head_dim][32 positions]), so a vector holds the scores of
// kLanes positions and no sum crosses lanes; values lie by position ([32][head_dim]). A query's
// score at a position sums over head_dim ascending, its output over positions ascending; both
// are independent of the queries beside it.
#pragma once

#include <limits>

#include "model/kernels/cpu/elementwise.inl.hpp"
#include "model/kernels/cpu/kernel_table.hpp"
#include "model/kv_layout.hpp"

namespace paceline::attention {

/// One stored key or value component: how wide it is and how kLanes of them are read.
template <class S>
struct F32Cache {
    static constexpr int kBytes = 4;
    static typename S::F load(const std::uint8_t* p) {
        return S::load(reinterpret_cast<const float*>(p));
    }
};
template <class S>
struct F16Cache {
    static constexpr int kBytes = 2;
    static typename S::F load(const std::uint8_t* p) {
        return S::load_half(reinterpret_cast<const std::uint16_t*>(p));
    }
};
template <class S>
struct BF16Cache {
    static constexpr int kBytes = 2;
    static typename S::F load(const std::uint8_t* p) {
        return S::load_bfloat(reinterpret_cast<const std::uint16_t*>(p));
    }
};

/// Scores of kQueries queries against one page of keys. Pages lie far apart, so the processor
/// cannot guess the next one: its lines are asked for meanwhile.
template <class S, class Cache, int kQueries>
void page_scores(const float* const* q,
                 const std::uint8_t* keys,
                 const std::uint8_t* next_keys,
                 int head_dim,
                 float* const* scores) {
    constexpr int kVectors = kKvPageSlots / S::kLanes;
    typename S::F acc[kQueries][kVectors];
    for (int i = 0; i < kQueries; ++i) {
        for (int v = 0; v < kVectors; ++v) acc[i][v] = S::zero();
    }
    for (int d = 0; d < head_dim; ++d) {
        typename S::F key[kVectors];
        S::prefetch(next_keys + d * kKvPageSlots * Cache::kBytes);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            key[v] = Cache::load(keys + (d * kKvPageSlots + v * S::kLanes) * Cache::kBytes);
        }
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i) {
            const typename S::F value = S::set1(q[i][d]);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) acc[i][v] = S::fma(key[v], value, acc[i][v]);
        }
    }
    for (int i = 0; i < kQueries; ++i) {
        for (int v = 0; v < kVectors; ++v) S::store(scores[i] + v * S::kLanes, acc[i][v]);
    }
}

/// Turns scores[0, count) into weights exp(score - max); returns {max, sum of weights}.
/// Places from count to the end of the page become 0.
struct Softened {
    float maximum;
    float sum;
};
template <class S>
Softened soften(float* scores, int count) {
    constexpr int kVectors = elementwise::kSumLanes / S::kLanes;
    const int end = pages_for(count) * kKvPageSlots;
    for (int p = count; p < end; ++p) scores[p] = -std::numeric_limits<float>::infinity();
    typename S::F best[kVectors];
    typename S::F sum[kVectors];
    for (int v = 0; v < kVectors; ++v) {
        best[v] = S::set1(-std::numeric_limits<float>::infinity());
        sum[v] = S::zero();
    }
    for (int p = 0; p < end; p += elementwise::kSumLanes) {
        for (int v = 0; v < kVectors; ++v)
            best[v] = S::max(best[v], S::load(scores + p + v * S::kLanes));
    }
    float lanes[elementwise::kSumLanes];
    for (int v = 0; v < kVectors; ++v) S::store(lanes + v * S::kLanes, best[v]);
    const float maximum =
        elementwise::join_lanes(lanes, [](float a, float b) { return a > b ? a : b; });
    for (int p = 0; p < end; p += elementwise::kSumLanes) {
        for (int v = 0; v < kVectors; ++v) {
            float* at = scores + p + v * S::kLanes;
            const typename S::F weight = elementwise::exp<S>(S::sub(S::load(at), S::set1(maximum)));
            S::store(at, weight);
            sum[v] = S::add(sum[v], weight);
        }
    }
    for (int v = 0; v < kVectors; ++v) S::store(lanes + v * S::kLanes, sum[v]);
    return {maximum, elementwise::join_lanes(lanes, [](float a, float b) { return a + b; })};
}

/// Weighted sums of kDims vectors of values for kQueries queries, positions [begin, end).
template <class S, class Cache, int kQueries, int kDims>
void weigh_values(const float* const* weights,
                  const std::uint8_t* const* values,
                  int begin,
                  int end,
                  int head_dim,
                  int dim,
                  float* const* out) {
    typename S::F acc[kQueries][kDims];
    for (int i = 0; i < kQueries; ++i) {
        for (int v = 0; v < kDims; ++v) acc[i][v] = S::load(out[i] + dim + v * S::kLanes);
    }
    for (int p = begin; p < end; ++p) {
        const std::uint8_t* row =
            values[p / kKvPageSlots] + ((p % kKvPageSlots) * head_dim + dim) * Cache::kBytes;
        typename S::F value[kDims];
#pragma GCC unroll 4
        for (int v = 0; v < kDims; ++v) value[v] = Cache::load(row + v * S::kLanes * Cache::kBytes);
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i) {
            const typename S::F weight = S::set1(weights[i][p]);
#pragma GCC unroll 4
            for (int v = 0; v < kDims; ++v) acc[i][v] = S::fma(weight, value[v], acc[i][v]);
        }
    }
    for (int i = 0; i < kQueries; ++i) {
        for (int v = 0; v < kDims; ++v) S::store(out[i] + dim + v * S::kLanes, acc[i][v]);
    }
}

/// head_dim components, four vectors at a time; what is left after whole vectors goes one by one.
template <class S, class Cache, int kQueries>
void weigh_all_dims(const float* const* weights,
                    const std::uint8_t* const* values,
                    int begin,
                    int end,
                    int head_dim,
                    float* const* out) {
    if (begin >= end) return;
    int dim = 0;
    for (; dim + 4 * S::kLanes <= head_dim; dim += 4 * S::kLanes) {
        weigh_values<S, Cache, kQueries, 4>(weights, values, begin, end, head_dim, dim, out);
    }
    for (; dim + S::kLanes <= head_dim; dim += S::kLanes) {
        weigh_values<S, Cache, kQueries, 1>(weights, values, begin, end, head_dim, dim, out);
    }
    if (dim == head_dim) return;
    for (int p = begin; p < end; ++p) {
        const std::uint8_t* row =
            values[p / kKvPageSlots] + (p % kKvPageSlots) * head_dim * Cache::kBytes;
        std::uint8_t last[S::kLanes * 4] = {};
        __builtin_memcpy(last, row + dim * Cache::kBytes,
                         static_cast<std::size_t>(head_dim - dim) * Cache::kBytes);
        float value[S::kLanes];
        S::store(value, Cache::load(last));
        for (int i = 0; i < kQueries; ++i) {
            for (int d = dim; d < head_dim; ++d)
                out[i][d] = weights[i][p] * value[d - dim] + out[i][d];
        }
    }
}

template <class S, class Cache, int kQueries>
void weigh(const AttentionArgs& args, int first, float* const* scores) {
    int shared = args.count[first];
    for (int i = 1; i < kQueries; ++i) {
        shared = args.count[first + i] < shared ? args.count[first + i] : shared;
    }
    weigh_all_dims<S, Cache, kQueries>(scores, args.values, 0, shared, args.head_dim,
                                       args.out + first);
    // A query that sees further goes on alone: a zero weight is not the same as no term.
    for (int i = 0; i < kQueries; ++i) {
        weigh_all_dims<S, Cache, 1>(scores + i, args.values, shared, args.count[first + i],
                                    args.head_dim, args.out + first + i);
    }
}

/// Calls step<kQueries>(first) for runs of at most kMax queries. Three are a run of their own:
/// they are all the queries of one row in many a model, and keys are best read once.
template <int kMax, class Step>
void in_runs(int queries, Step step) {
    int first = 0;
    while (queries - first >= kMax) {
        step.template operator()<kMax>(first);
        first += kMax;
    }
    if constexpr (kMax == 4) {
        if (queries - first == 3) {
            step.template operator()<3>(first);
            return;
        }
    }
    if constexpr (kMax > 1) {
        if (first < queries) {
            in_runs<kMax / 2>(queries - first, [&]<int kQueries>(int more) {
                step.template operator()<kQueries>(first + more);
            });
        }
    }
}

template <class S, class Cache>
void attend_as(const AttentionArgs& args) {
    constexpr int kScoreQueries = S::kLanes == 8 ? 2 : 8;
    constexpr int kValueQueries = S::kLanes == 8 ? 2 : 4;
    float* scores[kAttentionQueriesMax];
    int longest = 0;
    for (int i = 0; i < args.queries; ++i) {
        scores[i] = args.scores + static_cast<std::ptrdiff_t>(i) * kSplit;
        longest = args.count[i] > longest ? args.count[i] : longest;
    }
    const int pages = pages_for(longest);
    for (int page = 0; page < pages; ++page) {
        const std::uint8_t* next = page + 1 < pages ? args.keys[page + 1] : args.values[0];
        in_runs<kScoreQueries>(args.queries, [&]<int kQueries>(int first) {
            float* to[kQueries];
            for (int i = 0; i < kQueries; ++i) to[i] = scores[first + i] + page * kKvPageSlots;
            page_scores<S, Cache, kQueries>(args.q + first, args.keys[page], next, args.head_dim,
                                            to);
        });
    }
    for (int i = 0; i < args.queries; ++i) {
        const Softened softened = soften<S>(scores[i], args.count[i]);
        for (int d = 0; d < args.head_dim; ++d) args.out[i][d] = 0.0f;
        args.out[i][args.head_dim] = softened.maximum;
        args.out[i][args.head_dim + 1] = softened.sum;
    }
    in_runs<kValueQueries>(args.queries, [&]<int kQueries>(int first) {
        weigh<S, Cache, kQueries>(args, first, scores + first);
    });
}

template <class S>
void attend(const AttentionArgs& args) {
    switch (args.type) {
        case KvType::F32:
            attend_as<S, F32Cache<S>>(args);
            return;
        case KvType::F16:
            attend_as<S, F16Cache<S>>(args);
            return;
        case KvType::BF16:
            attend_as<S, BF16Cache<S>>(args);
            return;
    }
}

/// See KernelTable::merge. A split without a visible key has a maximum of -inf and weighs nothing.
template <class S>
void merge(float* running, const float* part, int head_dim) {
    const float before = running[head_dim];
    const float here = part[head_dim];
    const float maximum = here > before ? here : before;
    float lanes[S::kLanes];
    S::store(lanes, elementwise::exp<S>(S::set1(before - maximum)));
    const float keep = lanes[0];
    S::store(lanes, elementwise::exp<S>(S::set1(here - maximum)));
    const float add = lanes[0];
    for (int d = 0; d < head_dim; ++d) running[d] = running[d] * keep + part[d] * add;
    running[head_dim] = maximum;
    running[head_dim + 1] = running[head_dim + 1] * keep + part[head_dim + 1] * add;
}

template <class S>
void finish(const float* running, int head_dim, float* out) {
    const float inverse = 1.0f / running[head_dim + 1];
    for (int d = 0; d < head_dim; ++d) out[d] = running[d] * inverse;
}

/// head_dim numbers as 16-bit patterns; the tail after whole vectors goes through a buffer.
template <class S, bool kHalf>
void to_16bit(const float* x, int n, std::uint16_t* out) {
    for (int i = 0; i < n; i += S::kLanes) {
        float lanes[S::kLanes] = {};
        std::uint16_t bits[S::kLanes];
        const int used = n - i < S::kLanes ? n - i : S::kLanes;
        __builtin_memcpy(lanes, x + i, static_cast<std::size_t>(used) * sizeof(float));
        if constexpr (kHalf) {
            S::store_half(bits, S::load(lanes));
        } else {
            S::store_bfloat(bits, S::load(lanes));
        }
        __builtin_memcpy(out + i, bits, static_cast<std::size_t>(used) * sizeof(std::uint16_t));
    }
}

/// Keys go into a column of their page, values into a row.
template <class S, class T>
void put_in_page(const T* key, const T* value, int head_dim, KvPageView page, int lane) {
    auto* keys = reinterpret_cast<T*>(page.keys) + lane;
    for (int d = 0; d < head_dim; ++d) keys[d * kKvPageSlots] = key[d];
    __builtin_memcpy(page.values + static_cast<std::size_t>(lane * head_dim) * sizeof(T), value,
                     static_cast<std::size_t>(head_dim) * sizeof(T));
}

template <class S>
void store_kv(
    KvType type, const float* key, const float* value, int head_dim, KvPageView page, int lane) {
    if (type == KvType::F32) {
        put_in_page<S, float>(key, value, head_dim, page, lane);
        return;
    }
    std::uint16_t keys[kHeadDimMax];
    std::uint16_t values[kHeadDimMax];
    if (type == KvType::F16) {
        to_16bit<S, true>(key, head_dim, keys);
        to_16bit<S, true>(value, head_dim, values);
    } else {
        to_16bit<S, false>(key, head_dim, keys);
        to_16bit<S, false>(value, head_dim, values);
    }
    put_in_page<S, std::uint16_t>(keys, values, head_dim, page, lane);
}

}  // namespace paceline::attention

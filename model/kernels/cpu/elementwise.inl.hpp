// Row kernels between the matrix products, written once over a Simd type (simd_*.hpp).
//
// Sums over a row keep kSumLanes partial sums (lane i takes elements i, i + 16, ...) and join
// them in a fixed tree, so that every instruction set and every row does the same.
#pragma once

#include <cmath>

#include "model/kernels/cpu/kernel_table.hpp"
#include "model/weights/tensor.hpp"

namespace paceline::elementwise {

inline constexpr int kSumLanes = 16;

/// The lanes of 16 / kLanes vectors, joined pairwise: 16 -> 8 -> 4 -> 2 -> 1.
template <class Join>
float join_lanes(float* lanes, Join join) {
    for (int half = kSumLanes / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; ++l) lanes[l] = join(lanes[l], lanes[l + half]);
    }
    return lanes[0];
}

/// exp(x) by range reduction to [-ln2/2, ln2/2] and a polynomial of degree 6; relative error
/// below 2e-7. Results below 2^-126 are 0, arguments above 88 count as 88.
template <class S>
typename S::F exp(typename S::F x) {
    using F = typename S::F;
    const F lowest = S::set1(-87.0f);
    const F clamped = S::max(S::min(x, S::set1(88.0f)), lowest);
    const F n = S::round(S::mul(clamped, S::set1(1.44269504088896341f)));
    F r = S::fma(n, S::set1(-0.693359375f), clamped);
    r = S::fma(n, S::set1(2.12194440e-4f), r);
    F p = S::set1(1.9875691500e-4f);
    p = S::fma(p, r, S::set1(1.3981999507e-3f));
    p = S::fma(p, r, S::set1(8.3334519073e-3f));
    p = S::fma(p, r, S::set1(4.1665795894e-2f));
    p = S::fma(p, r, S::set1(1.6666665459e-1f));
    p = S::fma(p, r, S::set1(5.0000001201e-1f));
    p = S::fma(S::mul(r, r), p, S::add(r, S::set1(1.0f)));
    const F value = S::mul(p, S::pow2(n));
    return S::select_gt(lowest, x, S::zero(), value);
}

template <class S>
float rms_scale(const float* x, int cols, float epsilon) {
    constexpr int kVectors = kSumLanes / S::kLanes;
    typename S::F partial[kVectors];
    for (int v = 0; v < kVectors; ++v) partial[v] = S::zero();
    int c = 0;
    for (; c + kSumLanes <= cols; c += kSumLanes) {
        for (int v = 0; v < kVectors; ++v) {
            const typename S::F value = S::load(x + c + v * S::kLanes);
            partial[v] = S::fma(value, value, partial[v]);
        }
    }
    float lanes[kSumLanes];
    for (int v = 0; v < kVectors; ++v) S::store(lanes + v * S::kLanes, partial[v]);
    for (int l = 0; c < cols; ++c, ++l) lanes[l] += x[c] * x[c];
    const float sum = join_lanes(lanes, [](float a, float b) { return a + b; });
    return 1.0f / std::sqrt(sum / static_cast<float>(cols) + epsilon);
}

template <class S>
void scale_by(const float* x, const float* weight, float scale, int n, float* out) {
    const typename S::F scales = S::set1(scale);
    int c = 0;
    for (; c + S::kLanes <= n; c += S::kLanes) {
        S::store(out + c, S::mul(S::mul(S::load(x + c), scales), S::load(weight + c)));
    }
    for (; c < n; ++c) out[c] = x[c] * scale * weight[c];
}

template <class S>
void silu_mul(const float* gate, const float* up, int n, float* out) {
    const auto silu_times = [](typename S::F g, typename S::F u) {
        const typename S::F denominator = S::add(S::set1(1.0f), exp<S>(S::sub(S::zero(), g)));
        return S::mul(S::div(g, denominator), u);
    };
    int i = 0;
    for (; i + S::kLanes <= n; i += S::kLanes) {
        S::store(out + i, silu_times(S::load(gate + i), S::load(up + i)));
    }
    if (i == n) return;
    float g[S::kLanes] = {};
    float u[S::kLanes] = {};
    for (int l = 0; i + l < n; ++l) {
        g[l] = gate[i + l];
        u[l] = up[i + l];
    }
    S::store(g, silu_times(S::load(g), S::load(u)));
    for (int l = 0; i + l < n; ++l) out[i + l] = g[l];
}

/// Where what a kernel wants to know of a group goes.
struct GroupSums {
    float* scale;
    float* sum;
    std::int32_t* count;
    std::int32_t* half;
};

/// One group of 32 values to int8; see Activations. `stride`: bytes from four k to the next four.
template <class S>
void quantize_group(const float* x, std::int8_t* to, int stride, const GroupSums& sums) {
    const float top = S::max_abs32(x);
    std::int8_t quants[kGroup];
    const float d = top / 127.0f;
    const std::int32_t total = S::quantize32(x, top > 0.0f ? 127.0f / top : 0.0f, quants);
    for (int j = 0; j < kGroup / 4; ++j) __builtin_memcpy(to + j * stride, quants + 4 * j, 4);
    // A row with Inf or NaN has a scale that is none, so that its outputs show it.
    *sums.scale = d;
    *sums.sum = d * static_cast<float>(total);
    *sums.count = total;
    std::int32_t half = 0;
    for (int k = 0; k < kGroup / 2; ++k) half += quants[k];
    *sums.half = half;
}

template <class S>
void pack_row_f32(const float* x, Columns columns, float* out, int width) {
    for (int c = columns.first; c < columns.last; ++c) out[c * width] = x[c];
    for (int c = columns.last; c % kPair != 0; ++c) out[c * width] = 0.0f;
}

template <class S>
void pack_row_bf16(const float* x, Columns columns, std::uint16_t* out, int width) {
    std::uint16_t bits[S::kLanes];
    for (int c = columns.first; c < columns.last || c % kPair != 0; c += S::kLanes) {
        if (c + S::kLanes <= columns.last) {
            S::store_bfloat(bits, S::load(x + c));
        } else {
            float tail[S::kLanes] = {};
            for (int l = 0; c + l < columns.last && l < S::kLanes; ++l) tail[l] = x[c + l];
            S::store_bfloat(bits, S::load(tail));
        }
        for (int l = 0; l < S::kLanes; l += 2) __builtin_memcpy(out + (c + l) * width, bits + l, 4);
    }
}

template <class S>
void pack_row_int8(const float* x, Columns columns, const PackedRows& to, Panel panel, int lane) {
    const int width = panel.width;
    std::int8_t* out = to.int8(panel) + 4 * lane;
    float* scales = to.scales(panel) + lane;
    float* sums = to.sums(panel) + lane;
    std::int32_t* counts = to.counts(panel) + lane;
    std::int32_t* halves = to.halves(panel) + lane;
    for (int c = columns.first; c < columns.last || c % kPair != 0; c += kGroup) {
        const float* group = x + c;
        float tail[kGroup] = {};
        if (c + kGroup > columns.last) {
            for (int k = 0; c + k < columns.last; ++k) tail[k] = x[c + k];
            group = tail;
        }
        const int at = c / kGroup * width;
        quantize_group<S>(group, out + c * width, 4 * width,
                          {scales + at, sums + at, counts + at, halves + at});
    }
}

template <class S>
void pack_row(const float* x, Columns columns, const PackedRows& to, int row) {
    const Panel panel = panel_of(row, to.rows());
    const int lane = row - panel.first_row;
    switch (to.type()) {
        case ActivationType::F32:
            pack_row_f32<S>(x, columns, to.f32(panel) + lane, panel.width);
            return;
        case ActivationType::BF16:
            pack_row_bf16<S>(x, columns, to.bf16(panel) + 2 * lane, panel.width);
            return;
        case ActivationType::Int8:
            pack_row_int8<S>(x, columns, to, panel, lane);
            return;
    }
}

}  // namespace paceline::elementwise

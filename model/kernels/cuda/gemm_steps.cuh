// One step of a product for each type of weights: what a lane loads, and how it is multiplied.
//
// With g = lane / 4 and t = lane % 4, a lane has the weights of outputs g and g + 8 of its tile for
// the inputs 8t .. 8t+7 of a group of 32, and the same inputs of row g of each tile of rows. The
// tensor core sums over inputs in an order of its own within 16; which inputs stand where among
// them is the same for both sides, and that is all that matters:
//
//     first product of a group    8t .. 8t+3 of every t       second    8t+4 .. 8t+7
//
// Sums of a tile: c[0], c[1] are output g for rows 2t and 2t+1; c[2], c[3] output g + 8.
#pragma once

#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm.hpp"

namespace paceline::cuda {

/// Where a lane reads the rows of x: one pointer per tile of rows, nullptr if the row is not there.
template <int kRowTiles>
struct LaneRows {
    const std::uint16_t* at[kRowTiles];

    PACE_DEVICE Words4 load(int tile, int input) const {
        if (at[tile] == nullptr) return Words4{0, 0, 0, 0};
        return *reinterpret_cast<const Words4*>(at[tile] + input);
    }
};

PACE_DEVICE void multiply_group(float (&c)[4],
                                const std::uint32_t (&low)[4],
                                const std::uint32_t (&high)[4],
                                const Words4& x) {
    const std::uint32_t a0[4] = {low[0], high[0], low[1], high[1]};
    const std::uint32_t b0[2] = {x.x, x.y};
    mma_bf16(c, a0, b0);
    const std::uint32_t a1[4] = {low[2], high[2], low[3], high[3]};
    const std::uint32_t b1[2] = {x.z, x.w};
    mma_bf16(c, a1, b1);
}

template <WeightType kType>
struct Step;

/// Row-major, as in a file.
template <>
struct Step<WeightType::BF16> {
    Words4 low, high;

    PACE_DEVICE void load(const DeviceMatrix& w, int tile, int step) {
        const int g = lane() / 4;
        const auto* first = static_cast<const std::uint16_t*>(w.values);
        const auto* second = first;
        // Outputs that do not exist read the last one; nobody keeps what comes of them.
        int o = tile * kTileOutputs + g;
        int o2 = o + 8;
        if (w.paired) {
            second = static_cast<const std::uint16_t*>(w.second);
            o = tile * 8 + g;
            o2 = o;
        }
        o = o < w.outputs ? o : w.outputs - 1;
        o2 = o2 < w.outputs ? o2 : w.outputs - 1;
        const std::size_t input = static_cast<std::size_t>(step * 32 + lane() % 4 * 8);
        const auto stride = static_cast<std::size_t>(w.stride);
        low = load_streamed(
            reinterpret_cast<const Words4*>(first + static_cast<std::size_t>(o) * stride + input));
        high = load_streamed(reinterpret_cast<const Words4*>(
            second + static_cast<std::size_t>(o2) * stride + input));
    }

    template <int kRowTiles>
    PACE_DEVICE void multiply(const LaneRows<kRowTiles>& rows,
                              int step,
                              float (&sums)[kRowTiles][4]) const {
        const std::uint32_t a[4] = {low.x, low.y, low.z, low.w};
        const std::uint32_t b[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n)
            multiply_group(sums[n], a, b, rows.load(n, step * 32 + lane() % 4 * 8));
    }
};

/// Two bf16 numbers from bytes `i` and `i + 1` of a word of int8.
PACE_DEVICE std::uint32_t two_int8(std::uint32_t word, int i) {
    const auto at = [word](int k) {
        return static_cast<float>(static_cast<std::int8_t>((word >> (8 * k)) & 0xFFU));
    };
    return two_bf16(at(i), at(i + 1));
}

template <>
struct Step<WeightType::Int8> {
    Words4 values;
    std::uint32_t scales;

    PACE_DEVICE void load(const DeviceMatrix& w, int tile, int step) {
        const auto* record = static_cast<const unsigned char*>(w.values) +
                             (static_cast<std::size_t>(tile) *
                                  static_cast<std::size_t>(steps_of(WeightType::Int8, w.inputs)) +
                              static_cast<std::size_t>(step)) *
                                 record_bytes(WeightType::Int8);
        values = load_streamed(reinterpret_cast<const Words4*>(record) + lane());
        scales = *(reinterpret_cast<const std::uint32_t*>(record + 512) + lane() / 4);
    }

    template <int kRowTiles>
    PACE_DEVICE void multiply(const LaneRows<kRowTiles>& rows,
                              int step,
                              float (&sums)[kRowTiles][4]) const {
        const std::uint32_t a[4] = {two_int8(values.x, 0), two_int8(values.x, 2),
                                    two_int8(values.y, 0), two_int8(values.y, 2)};
        const std::uint32_t b[4] = {two_int8(values.z, 0), two_int8(values.z, 2),
                                    two_int8(values.w, 0), two_int8(values.w, 2)};
        const float low = half_to_float(static_cast<std::uint16_t>(scales & 0xFFFFU));
        const float high = half_to_float(static_cast<std::uint16_t>(scales >> 16U));
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            float group[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            multiply_group(group, a, b, rows.load(n, step * 32 + lane() % 4 * 8));
            sums[n][0] = fma(low, group[0], sums[n][0]);
            sums[n][1] = fma(low, group[1], sums[n][1]);
            sums[n][2] = fma(high, group[2], sums[n][2]);
            sums[n][3] = fma(high, group[3], sums[n][3]);
        }
    }
};

/// Nibbles `i` and `i + 1` of a word as two bf16 numbers.
PACE_DEVICE std::uint32_t two_nibbles(std::uint32_t word, int i) {
    const auto at = [word](int k) { return static_cast<float>((word >> (4 * k)) & 0xFU); };
    return two_bf16(at(i), at(i + 1));
}

template <>
struct Step<WeightType::Q4> {
    Words4 values;  // group 0: output g, g + 8; group 1: the same
    Words4 scales;  // group 0: scales of g and g + 8, their minima; group 1: the same

    PACE_DEVICE void load(const DeviceMatrix& w, int tile, int step) {
        const auto* record = static_cast<const unsigned char*>(w.values) +
                             (static_cast<std::size_t>(tile) *
                                  static_cast<std::size_t>(steps_of(WeightType::Q4, w.inputs)) +
                              static_cast<std::size_t>(step)) *
                                 record_bytes(WeightType::Q4);
        values = load_streamed(reinterpret_cast<const Words4*>(record) + lane());
        scales = *(reinterpret_cast<const Words4*>(record + 512) + lane() / 4);
    }

    template <int kRowTiles>
    PACE_DEVICE void multiply(const LaneRows<kRowTiles>& rows,
                              int step,
                              float (&sums)[kRowTiles][4]) const {
        multiply_half(rows, step * 64, values.x, values.y, scales.x, scales.y, sums);
        multiply_half(rows, step * 64 + 32, values.z, values.w, scales.z, scales.w, sums);
    }

private:
    template <int kRowTiles>
    static PACE_DEVICE void multiply_half(const LaneRows<kRowTiles>& rows,
                                          int input,
                                          std::uint32_t of_low,
                                          std::uint32_t of_high,
                                          std::uint32_t scale,
                                          std::uint32_t minimum,
                                          float (&sums)[kRowTiles][4]) {
        const std::uint32_t a[4] = {two_nibbles(of_low, 0), two_nibbles(of_low, 2),
                                    two_nibbles(of_low, 4), two_nibbles(of_low, 6)};
        const std::uint32_t b[4] = {two_nibbles(of_high, 0), two_nibbles(of_high, 2),
                                    two_nibbles(of_high, 4), two_nibbles(of_high, 6)};
        constexpr std::uint32_t kTwoOnes = 0x3F803F80U;
        const std::uint32_t ones[4] = {kTwoOnes, kTwoOnes, kTwoOnes, kTwoOnes};
        const auto half_of = [](std::uint32_t word, bool upper) {
            return half_to_float(static_cast<std::uint16_t>(upper ? word >> 16U : word & 0xFFFFU));
        };
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            const Words4 x = rows.load(n, input + lane() % 4 * 8);
            float group[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            multiply_group(group, a, b, x);
            // A product with ones puts the sum of a row's inputs where its minimum is needed.
            float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            multiply_group(total, ones, ones, x);
            for (int i = 0; i < 4; ++i) {
                sums[n][i] = fma(half_of(scale, i >= 2), group[i], sums[n][i]);
                sums[n][i] = fma(half_of(minimum, i >= 2), total[i], sums[n][i]);
            }
        }
    }
};

/// Plain float arithmetic: the path that is compared with other backends, not a fast one.
template <>
struct Step<WeightType::F32> {
    const float* low;
    const float* high;

    PACE_DEVICE void load(const DeviceMatrix& w, int tile, int step) {
        const int g = lane() / 4;
        const auto* first = static_cast<const float*>(w.values);
        const auto* second = w.paired ? static_cast<const float*>(w.second) : first;
        int o = w.paired ? tile * 8 + g : tile * kTileOutputs + g;
        int o2 = w.paired ? o : o + 8;
        o = o < w.outputs ? o : w.outputs - 1;
        o2 = o2 < w.outputs ? o2 : w.outputs - 1;
        const auto stride = static_cast<std::size_t>(w.stride);
        low = first + static_cast<std::size_t>(o) * stride + static_cast<std::size_t>(step * 32);
        high = second + static_cast<std::size_t>(o2) * stride + static_cast<std::size_t>(step * 32);
    }

    /// `x` is [rows][x_stride]; a row that is not there counts as zeros.
    template <int kRowTiles>
    PACE_DEVICE void multiply(
        const float* x, int x_stride, int rows, int step, float (&sums)[kRowTiles][4]) const {
        for (int n = 0; n < kRowTiles; ++n) {
            for (int i = 0; i < 2; ++i) {
                const int row = n * kTileRows + 2 * (lane() % 4) + i;
                if (row >= rows) continue;
                const float* from =
                    x + static_cast<std::size_t>(row) * static_cast<std::size_t>(x_stride) +
                    static_cast<std::size_t>(step * 32);
                for (int k = 0; k < 32; ++k) {
                    sums[n][i] = fma(low[k], from[k], sums[n][i]);
                    sums[n][2 + i] = fma(high[k], from[k], sums[n][2 + i]);
                }
            }
        }
    }
};

}  // namespace paceline::cuda

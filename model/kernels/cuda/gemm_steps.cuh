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
//
// Both kernels multiply with add_group(), group after group in ascending order: that, and where
// slices begin, is what their equal bits rest on.
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

/// 32 inputs of a lane's two outputs as the tensor core takes them: made once for all rows, since
/// its four words have to stand in four registers that follow one another.
struct Operands {
    std::uint32_t first[4], second[4];

    /// From the words of output g and of output g + 8.
    static PACE_DEVICE Operands of(const std::uint32_t (&low)[4], const std::uint32_t (&high)[4]) {
        return {{low[0], high[0], low[1], high[1]}, {low[2], high[2], low[3], high[3]}};
    }

    /// The same words in registers of their own. Words that were only loaded are copied to where
    /// they follow one another, and nvcc 13 does that anew for every product (127 copies in a loop
    /// of 32 products); `zero` is a 0 that it does not know.
    PACE_DEVICE Operands anew(std::uint32_t zero) const {
        Operands made = *this;
        for (int i = 0; i < 4; ++i) made.first[i] ^= zero;
        for (int i = 0; i < 4; ++i) made.second[i] ^= zero;
        return made;
    }
};

PACE_DEVICE void multiply_group(float (&c)[4], const Operands& w, const Words4& x) {
    const std::uint32_t b0[2] = {x.x, x.y};
    mma_bf16(c, w.first, b0);
    const std::uint32_t b1[2] = {x.z, x.w};
    mma_bf16(c, w.second, b1);
}

/// 32 inputs of a lane's two outputs, ready to be multiplied.
template <WeightType kType>
struct Group {
    Operands weights;
    float scale[kType == WeightType::BF16 ? 1 : 2];  // of output g, of g + 8
    float minimum[kType == WeightType::Q4 ? 2 : 1];
};

/// Sums of a group's inputs, of rows 2t and 2t+1: what the minima of Q4 are multiplied by.
struct InputSums {
    float of[2];
};
template <WeightType kType>
PACE_DEVICE InputSums sum_inputs(const Words4& x) {
    if constexpr (kType != WeightType::Q4) {
        return {};
    } else {
        // A product with ones puts the sum of a row's inputs where its minimum is needed.
        constexpr std::uint32_t kTwoOnes = 0x3F803F80U;
        const Operands ones{{kTwoOnes, kTwoOnes, kTwoOnes, kTwoOnes},
                            {kTwoOnes, kTwoOnes, kTwoOnes, kTwoOnes}};
        float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        multiply_group(total, ones, x);
        return {{total[0], total[1]}};  // the same for every output
    }
}

template <WeightType kType>
PACE_DEVICE void add_group(float (&sums)[4],
                           const Group<kType>& w,
                           const Words4& x,
                           const InputSums& totals) {
    if constexpr (kType == WeightType::BF16) {
        multiply_group(sums, w.weights, x);
    } else {
        float group[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        multiply_group(group, w.weights, x);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sums[i] = fma(w.scale[i / 2], group[i], sums[i]);
            if constexpr (kType == WeightType::Q4)
                sums[i] = fma(w.minimum[i / 2], totals.of[i % 2], sums[i]);
        }
    }
}

/// A half of a word as float.
PACE_DEVICE float half_of(std::uint32_t word, bool upper) {
    return half_to_float(static_cast<std::uint16_t>(upper ? word >> 16U : word & 0xFFFFU));
}

/// Where records of a matrix begin.
PACE_DEVICE const unsigned char* record_of(const DeviceMatrix& w, int tile, int step) {
    // Tiles that do not exist read the last one; their results are not kept.
    const int last = w.tiles() - 1;
    return static_cast<const unsigned char*>(w.values) +
           (static_cast<std::size_t>(tile < last ? tile : last) *
                static_cast<std::size_t>(steps_of(w.type, w.inputs)) +
            static_cast<std::size_t>(step)) *
               record_bytes(w.type);
}

/// Where output `o` of a tile (0 .. 15) begins in a row-major matrix of T.
template <class T>
PACE_DEVICE const T* output_of(const DeviceMatrix& w, int tile, int o) {
    const bool second = w.paired && o >= 8;
    const auto* values = static_cast<const T*>(second ? w.second : w.values);
    const int output = w.paired ? tile * 8 + o % 8 : tile * kTileOutputs + o;
    const int last = w.outputs - 1;  // for those that do not exist, as above
    return values + static_cast<std::size_t>(output < last ? output : last) *
                        static_cast<std::size_t>(w.stride);
}

/// What a lane holds of a tile's step: load() from global memory, group() when it is multiplied.
template <WeightType kType>
struct Step;

/// Row-major, as in a file.
template <>
struct Step<WeightType::BF16> {
    static constexpr int kGroups = 1;
    Words4 low, high;

    PACE_DEVICE void load(const DeviceMatrix& w, int tile, int step) {
        const int input = step * 32 + lane() % 4 * 8;
        low = load_streamed(
            reinterpret_cast<const Words4*>(output_of<std::uint16_t>(w, tile, lane() / 4) + input));
        high = load_streamed(reinterpret_cast<const Words4*>(
            output_of<std::uint16_t>(w, tile, lane() / 4 + 8) + input));
    }
    PACE_DEVICE Group<WeightType::BF16> group(int) const {
        return {
            Operands::of({low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}), {}, {}};
    }
};

/// Two bf16 numbers from bytes `i` and `i + 1` of a word of int8 plus 128 each. Without a
/// conversion, which a GPU does at a quarter of the speed of the rest: a byte at the end of 2^23 is
/// that much more, and a difference of so few bits has its last 16 all zero.
PACE_DEVICE std::uint32_t two_bytes(std::uint32_t word, int i) {
    constexpr float kBias = 8388608.0f + 128.0f;
    const auto at = [word](int k) {
        return bits_of(float_of(((word >> (8 * k)) & 0xFFU) | 0x4B000000U) - kBias);
    };
    return (at(i) >> 16U) | (at(i + 1) & 0xFFFF0000U);
}

template <>
struct Step<WeightType::Int8> {
    static constexpr int kGroups = 1;
    Words4 values;
    std::uint32_t scales;

    PACE_DEVICE void load(const DeviceMatrix& w, int tile, int step) {
        const unsigned char* record = record_of(w, tile, step);
        values = load_streamed(reinterpret_cast<const Words4*>(record) + lane());
        scales = *(reinterpret_cast<const std::uint32_t*>(record + 512) + lane() / 4);
    }
    PACE_DEVICE Group<WeightType::Int8> group(int) const {
        constexpr std::uint32_t kPlus128 = 0x80808080U;
        const std::uint32_t w[4] = {values.x ^ kPlus128, values.y ^ kPlus128, values.z ^ kPlus128,
                                    values.w ^ kPlus128};
        return {
            Operands::of(
                {two_bytes(w[0], 0), two_bytes(w[0], 2), two_bytes(w[1], 0), two_bytes(w[1], 2)},
                {two_bytes(w[2], 0), two_bytes(w[2], 2), two_bytes(w[3], 0), two_bytes(w[3], 2)}),
            {half_of(scales, false), half_of(scales, true)},
            {}};
    }
};

/// Nibbles `i` and `i + 4` of a word, which are neighbours among the inputs, as two bf16 numbers: at
/// the end of 128 they are that much more.
PACE_DEVICE std::uint32_t two_nibbles(std::uint32_t word, int i) {
    constexpr std::uint32_t kTwo128 = 0x43004300U;
    constexpr std::uint32_t kTwoMinus128 = 0xC300C300U;
    return add_two_bf16(((word >> (4 * i)) & 0x000F000FU) | kTwo128, kTwoMinus128);
}

template <>
struct Step<WeightType::Q4> {
    static constexpr int kGroups = 2;
    Words4 values;  // group 0: output g, g + 8; group 1: the same
    Words4 scales;  // group 0: scales of g and g + 8, their minima; group 1: the same

    PACE_DEVICE void load(const DeviceMatrix& w, int tile, int step) {
        const unsigned char* record = record_of(w, tile, step);
        values = load_streamed(reinterpret_cast<const Words4*>(record) + lane());
        scales = *(reinterpret_cast<const Words4*>(record + 512) + lane() / 4);
    }
    PACE_DEVICE Group<WeightType::Q4> group(int part) const {
        const std::uint32_t low = part == 0 ? values.x : values.z;
        const std::uint32_t high = part == 0 ? values.y : values.w;
        const std::uint32_t scale = part == 0 ? scales.x : scales.z;
        const std::uint32_t minimum = part == 0 ? scales.y : scales.w;
        return {Operands::of({two_nibbles(low, 0), two_nibbles(low, 1), two_nibbles(low, 2),
                              two_nibbles(low, 3)},
                             {two_nibbles(high, 0), two_nibbles(high, 1), two_nibbles(high, 2),
                              two_nibbles(high, 3)}),
                {half_of(scale, false), half_of(scale, true)},
                {half_of(minimum, false), half_of(minimum, true)}};
    }
};

/// Plain float arithmetic: the path that is compared with other backends, not a fast one.
template <>
struct Step<WeightType::F32> {
    const float* low;
    const float* high;

    PACE_DEVICE void load(const DeviceMatrix& w, int tile, int step) {
        low = output_of<float>(w, tile, lane() / 4) + step * 32;
        high = output_of<float>(w, tile, lane() / 4 + 8) + step * 32;
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

/// Inputs of the slice [first, last) of a product, in steps.
struct Slice {
    int first;
    int last;
};
PACE_DEVICE Slice slice_of(int steps, int slice, int slices) {
    return {steps * slice / slices, steps * (slice + 1) / slices};
}

}  // namespace paceline::cuda

// One step of a product for each type of weights: what a lane loads, and how it is multiplied.
//
// With g = lane / 4 and t = lane % 4, a lane has the weights of outputs g and g + 8 of its tile for
// the inputs 8t .. 8t+7 of a group of 32, and the same inputs of row g of each tile of rows. The
// tensor core sums over inputs in an order of its own within 16; which inputs stand where among
// them is the same for both sides, and that is all that matters:
//
//     first product of a group    8t .. 8t+3 of every t       second    8t+4 .. 8t+7
//
// In types with a scale per 16 inputs the lane has inputs 4t .. 4t+3 of both halves of the group
// instead, so that each of the two products covers one half.
//
// Sums of a tile: c[0], c[1] are output g for rows 2t and 2t+1; c[2], c[3] output g + 8.
//
// Both kernels multiply with add_group(), group after group in ascending order: that, and where
// slices begin, is what their equal bits rest on.
#pragma once

#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm/gemm.hpp"
#include "model/kernels/cuda/gemm/gemm_codes.cuh"
#include "model/kernels/cuda/gemm/gemm_records.hpp"

namespace paceline::cuda {

/// Where a lane reads the rows of x: one pointer per tile of rows, nullptr if the row is not there.
template <int kRowTiles>
struct LaneRows {
    const std::uint16_t* at[kRowTiles];

    /// The lane's eight inputs of the group that begins at `group`.
    template <WeightType kType>
    PACE_DEVICE Words4 load(int tile, int group) const {
        if (at[tile] == nullptr) return Words4{0, 0, 0, 0};
        const std::uint16_t* from = at[tile] + group;
        if constexpr (!has_halves(block_format(kType).form)) {
            return *reinterpret_cast<const Words4*>(from + lane() % 4 * 8);
        } else {
            const auto first = *reinterpret_cast<const Words2*>(from + lane() % 4 * 4);
            const auto second = *reinterpret_cast<const Words2*>(from + 16 + lane() % 4 * 4);
            return {first.x, first.y, second.x, second.y};
        }
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

/// Scales per group of 32 inputs.
constexpr int scales_of(WeightType type) {
    return has_halves(block_format(type).form) ? 2 : 1;
}

/// 32 inputs of a lane's two outputs, ready to be multiplied. Scales and minima are not set for
/// row-major types.
template <WeightType kType>
struct Group {
    Operands weights;
    float scale[scales_of(kType)][2];  // of output g, of g + 8
    float minimum[scales_of(kType)][2];
};

/// Sums of inputs, which minima are multiplied by: of rows 2t and 2t+1, for each scale of a group.
template <WeightType kType>
struct InputSums {
    float of[scales_of(kType)][2];
};
template <WeightType kType>
PACE_DEVICE InputSums<kType> sum_inputs(const Words4& x) {
    constexpr ScaleForm kForm = block_format(kType).form;
    if constexpr (!has_minimum(kForm)) {
        return {};
    } else {
        // A product with ones puts each row's sum into the lanes that need it; it is the same for
        // every output.
        constexpr std::uint32_t kTwoOnes = 0x3F803F80U;
        const std::uint32_t ones[4] = {kTwoOnes, kTwoOnes, kTwoOnes, kTwoOnes};
        const std::uint32_t first[2] = {x.x, x.y};
        const std::uint32_t second[2] = {x.z, x.w};
        float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma_bf16(total, ones, first);
        if constexpr (!has_halves(kForm)) {
            mma_bf16(total, ones, second);
            return {{{total[0], total[1]}}};
        } else {
            float upper[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            mma_bf16(upper, ones, second);
            return {{{total[0], total[1]}, {upper[0], upper[1]}}};
        }
    }
}

/// Adds scale `h` of a group times its product, and the minimum times the sum of the inputs.
template <WeightType kType>
PACE_DEVICE void add_scaled(float (&sums)[4],
                            const Group<kType>& w,
                            int h,
                            const float (&product)[4],
                            const InputSums<kType>& totals) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sums[i] = fma(w.scale[h][i / 2], product[i], sums[i]);
        if constexpr (has_minimum(block_format(kType).form))
            sums[i] = fma(w.minimum[h][i / 2], totals.of[h][i % 2], sums[i]);
    }
}

template <WeightType kType>
PACE_DEVICE void add_group(float (&sums)[4],
                           const Group<kType>& w,
                           const Words4& x,
                           const InputSums<kType>& totals) {
    if constexpr (is_row_major(kType)) {
        multiply_group(sums, w.weights, x);
    } else if constexpr (!has_halves(block_format(kType).form)) {
        float group[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        multiply_group(group, w.weights, x);
        add_scaled<kType>(sums, w, 0, group, totals);
    } else {
        const std::uint32_t first[2] = {x.x, x.y};
        const std::uint32_t second[2] = {x.z, x.w};
        float low[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        float high[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma_bf16(low, w.weights.first, first);
        mma_bf16(high, w.weights.second, second);
        add_scaled<kType>(sums, w, 0, low, totals);
        add_scaled<kType>(sums, w, 1, high, totals);
    }
}

/// Where a tile of records begins. For a tile that does not exist the last one, whose results are
/// then not kept.
template <WeightType kType>
PACE_DEVICE const unsigned char* tile_of(const DeviceMatrix& w, int tile) {
    const int last = w.tiles() - 1;
    return static_cast<const unsigned char*>(w.values) +
           static_cast<std::size_t>(tile < last ? tile : last) * tile_bytes(kType, w.inputs);
}
/// Where a record of a tile begins. Offsets of 32 bits, which take fewer registers (Int8, one tile
/// of rows: 64 instead of 71, so that a fourth block fits on a multiprocessor of 9.0).
template <WeightType kType>
PACE_DEVICE const unsigned char* record_of(const unsigned char* tile, int step) {
    return tile + static_cast<unsigned>(step) * static_cast<unsigned>(record_bytes(kType));
}
/// Where the heads of a tile begin.
template <WeightType kType>
PACE_DEVICE const unsigned char* heads_of(const DeviceMatrix& w, const unsigned char* tile) {
    return record_of<kType>(tile, steps_of(kType, w.inputs));
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
struct Step {
    static constexpr int kGroups = step_inputs(kType) / 32;
    LaneRecord<kType> record;

    PACE_DEVICE void load(const DeviceMatrix& w, int tile, int step) {
        const unsigned char* of_tile = tile_of<kType>(w, tile);
        const auto head = static_cast<unsigned>(step) * step_inputs(kType) / kHeadInputs;
        record.template read<true>(record_of<kType>(of_tile, step),
                                   heads_of<kType>(w, of_tile) + head * 8 * head_bytes(kType));
    }
    PACE_DEVICE Group<kType> group(int part) const {
        std::uint32_t low[4];
        std::uint32_t high[4];
        record.numbers(part, 0, low);
        record.numbers(part, 1, high);
        Group<kType> made;
        made.weights = Operands::of(low, high);
#pragma unroll
        for (int i = 0; i < 2 * scales_of(kType); ++i) {
            made.scale[i / 2][i % 2] = record.scale(part, i % 2, i / 2);
            if constexpr (has_minimum(block_format(kType).form))
                made.minimum[i / 2][i % 2] = record.minimum(part, i % 2, i / 2);
        }
        return made;
    }
};

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

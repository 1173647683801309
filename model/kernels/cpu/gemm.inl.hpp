// Matrix product kernels, written once over a Simd type (simd_*.hpp).
//
// A kernel holds kRows rows x kBlocks lane blocks of float32 accumulators in registers and walks
// k from 0 to the end. Rows and blocks only decide how much is done at once: each accumulator
// sees the same operations in the same order whatever kRows and kBlocks are, which is why a
// row's bits do not depend on the rows beside it.
//
// A lane block is kLanes outputs of a tile: the whole tile for AVX-512, half of it for AVX2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/kernels/cpu/kernel_table.hpp"
#include "model/kernels/cpu/packed_blocks.hpp"
#include "model/kernels/cpu/weight_stream.inl.hpp"

namespace paceline::gemm {

/// The inputs of kRows rows of a panel.
struct PanelInput {
    const void* values;
    const float* scales;
    const float* sums;
    const std::int32_t* counts;
    const std::int32_t* halves;
    int width;  // of the panel; kRows of them are used, starting at `row`
    int row;
};

template <class S, int kRows, int kBlocks>
using Accumulators = typename S::F[kRows][kBlocks];

// ---- 4-bit ------------------------------------------------------------------------------------

/// How many words of four products of codes up to `code_max` with inputs of 127 at most add up in
/// 16 bits.
constexpr int words_in_16_bits(int code_max) {
    constexpr int kInputMax = 127;
    return INT16_MAX / (2 * kInputMax * code_max);
}

/// Adds the products of a group's 32 nibbles with the inputs from `a` on.
template <class S, int kRows, int kBlocks>
[[gnu::always_inline]] inline void add_nibbles(const LaneBlock<S> (&w)[kBlocks],
                                               int at,
                                               const std::int8_t* a,
                                               int step,
                                               typename S::I (&sum)[kRows][kBlocks]) {
    static_assert(words_in_16_bits(15) >= 8, "a whole group");
    typename S::I pairs[kRows][kBlocks];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        typename S::B low[kBlocks];
        typename S::B high[kBlocks];
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
            const std::uint8_t* quants = w[b].quants + at + j * kLine;
            if (asks_for_line<S>(b)) prefetch_line(w[b], quants);
            const typename S::B both = S::load_bytes(quants);
            low[b] = S::low_nibbles(both);
            high[b] = S::high_nibbles(both);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            const typename S::B first = S::broadcast4(a + 4 * r);
            const typename S::B second = S::broadcast4(a + step + 4 * r);
#pragma GCC unroll 4
            for (int b = 0; b < kBlocks; ++b) {
                if constexpr (S::kSums16) {
                    const typename S::I both =
                        S::add16(S::products16(low[b], first), S::products16(high[b], second));
                    pairs[r][b] = j == 0 ? both : S::add16(pairs[r][b], both);
                } else {
                    sum[r][b] = S::dot_nibbles(sum[r][b], low[b], first);
                    sum[r][b] = S::dot_nibbles(sum[r][b], high[b], second);
                }
            }
        }
        a += 2 * step;
    }
    if constexpr (S::kSums16) {
        for (int r = 0; r < kRows; ++r) {
            for (int b = 0; b < kBlocks; ++b) sum[r][b] = S::add_pairs16(sum[r][b], pairs[r][b]);
        }
    }
}

template <class S, int kRows, int kBlocks, bool kMinimum>
void multiply_q4(const LaneBlock<S> (&w)[kBlocks],
                 const PanelInput& x,
                 int groups,
                 Accumulators<S, kRows, kBlocks>& acc) {
    constexpr int kQuants = 256;
    constexpr int kScales = kMinimum ? 64 : 32;
    constexpr int kPairBytes = 2 * (kQuants + kScales);
    const auto* a = static_cast<const std::int8_t*>(x.values) + 4 * x.row;
    const int step = 4 * x.width;
    for (int g = 0; g < groups; ++g) {
        const int pair = (g / 2) * kPairBytes;
        const int half = g % 2;
        if constexpr (S::kPrefetchesGroups)
            prefetch_group<S, lines(kQuants + kScales)>(w, pair + half * (kQuants + kScales));
        typename S::I sum[kRows][kBlocks];
        for (int r = 0; r < kRows; ++r) {
            for (int b = 0; b < kBlocks; ++b) {
                sum[r][b] =
                    kMinimum ? S::zero_i() : S::set1_i(-8 * x.counts[g * x.width + x.row + r]);
            }
        }
        add_nibbles<S, kRows, kBlocks>(w, pair + half * kQuants, a, step, sum);
        a += 8 * step;
        const float* scale = x.scales + g * x.width + x.row;
        const float* total = x.sums + g * x.width + x.row;
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
            const std::uint8_t* scales = w[b].scales + pair + half * kScales;
            if (asks_for_line<S>(b)) prefetch_line(w[b], scales);
            const auto* halves = reinterpret_cast<const std::uint16_t*>(scales);
            const typename S::F d = S::load_half(halves);
            const typename S::F m = kMinimum ? S::load_half(halves + kTileRows) : S::zero();
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const typename S::F product = S::mul(d, S::set1(scale[r]));
                const typename S::F all = S::fma(S::to_float(sum[r][b]), product, acc[r][b]);
                acc[r][b] = kMinimum ? S::fma(m, S::set1(total[r]), all) : all;
            }
        }
    }
}

#include "model/kernels/cpu/gemm_blocks.inl.hpp"

// ---- int8 -------------------------------------------------------------------------------------

template <class S, int kRows, int kBlocks>
void multiply_int8(const LaneBlock<S> (&w)[kBlocks],
                   const PanelInput& x,
                   int groups,
                   Accumulators<S, kRows, kBlocks>& acc) {
    constexpr int kQuants = 512;
    constexpr int kScales = 32;
    constexpr int kPairBytes = 2 * (kQuants + kScales);
    const auto* a = static_cast<const std::int8_t*>(x.values) + 4 * x.row;
    const int step = 4 * x.width;
    for (int g = 0; g < groups; ++g) {
        const int pair = (g / 2) * kPairBytes;
        const int half = g % 2;
        if constexpr (S::kPrefetchesGroups)
            prefetch_group<S, lines(kQuants + kScales)>(w, pair + half * (kQuants + kScales));
        typename S::I sum[kRows][kBlocks];
        for (int r = 0; r < kRows; ++r) {
            for (int b = 0; b < kBlocks; ++b) {
                sum[r][b] = S::int8_start(x.counts[g * x.width + x.row + r]);
            }
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            typename S::B quants[kBlocks];
#pragma GCC unroll 4
            for (int b = 0; b < kBlocks; ++b) {
                const std::uint8_t* from = w[b].quants + pair + half * kQuants + j * kLine;
                if (asks_for_line<S>(b)) prefetch_line(w[b], from);
                quants[b] = S::load_bytes(from);
            }
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const typename S::B four = S::broadcast4(a + 4 * r);
#pragma GCC unroll 4
                for (int b = 0; b < kBlocks; ++b) {
                    sum[r][b] = S::dot_int8(sum[r][b], quants[b], four);
                }
            }
            a += step;
        }
        const float* scale = x.scales + g * x.width + x.row;
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
            const std::uint8_t* scales = w[b].scales + pair + half * kScales;
            if (asks_for_line<S>(b)) prefetch_line(w[b], scales);
            const typename S::F d = S::load_half(reinterpret_cast<const std::uint16_t*>(scales));
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const typename S::F product = S::mul(d, S::set1(scale[r]));
                acc[r][b] = S::fma(S::to_float(sum[r][b]), product, acc[r][b]);
            }
        }
    }
}

// ---- bf16, f16 and f32 ------------------------------------------------------------------------

template <class S, int kRows, int kBlocks>
void multiply_bf16(const LaneBlock<S> (&w)[kBlocks],
                   const PanelInput& x,
                   int groups,
                   Accumulators<S, kRows, kBlocks>& acc) {
    const auto* a = static_cast<const std::uint16_t*>(x.values) + 2 * x.row;
    const int step = 2 * x.width;
    const int pairs = groups * kGroup / 2;
    for (int p = 0; p < pairs; ++p, a += step) {
        typename S::W weights[kBlocks];
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
            const std::uint8_t* from = w[b].quants + p * kLine;
            if (first_of_line<S>(b)) prefetch_line(w[b], from);
            weights[b] = S::load_pairs(reinterpret_cast<const std::uint16_t*>(from));
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            const typename S::P pair = S::broadcast_pair(a + 2 * r);
#pragma GCC unroll 4
            for (int b = 0; b < kBlocks; ++b) acc[r][b] = S::dot_pairs(acc[r][b], weights[b], pair);
        }
    }
}

template <class S, int kRows, int kBlocks>
void multiply_f16(const LaneBlock<S> (&w)[kBlocks],
                  const PanelInput& x,
                  int groups,
                  Accumulators<S, kRows, kBlocks>& acc) {
    constexpr int kInputBytes = kLine / 2;
    const auto* a = static_cast<const float*>(x.values) + x.row;
    const int lines = groups * kGroup / 2;
    for (int line = 0; line < lines; ++line) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half, a += x.width) {
            typename S::F weights[kBlocks];
#pragma GCC unroll 4
            for (int b = 0; b < kBlocks; ++b) {
                const std::uint8_t* from = w[b].quants + line * kLine + half * kInputBytes;
                if (half == 0 && first_of_line<S>(b)) prefetch_line(w[b], from);
                weights[b] = S::load_half(reinterpret_cast<const std::uint16_t*>(from));
            }
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const typename S::F value = S::set1(a[r]);
#pragma GCC unroll 4
                for (int b = 0; b < kBlocks; ++b) acc[r][b] = S::fma(weights[b], value, acc[r][b]);
            }
        }
    }
}

template <class S, int kRows, int kBlocks>
void multiply_f32(const LaneBlock<S> (&w)[kBlocks],
                  const PanelInput& x,
                  int groups,
                  Accumulators<S, kRows, kBlocks>& acc) {
    const auto* a = static_cast<const float*>(x.values) + x.row;
    const int ks = groups * kGroup;
    for (int k = 0; k < ks; ++k, a += x.width) {
        typename S::F weights[kBlocks];
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
            const std::uint8_t* from = w[b].quants + k * kLine;
            if (first_of_line<S>(b)) prefetch_line(w[b], from);
            weights[b] = S::load(reinterpret_cast<const float*>(from));
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            const typename S::F value = S::set1(a[r]);
#pragma GCC unroll 4
            for (int b = 0; b < kBlocks; ++b) acc[r][b] = S::fma(weights[b], value, acc[r][b]);
        }
    }
}

// ---- one register tile, then all of them ------------------------------------------------------

/// Writes up to kLanes outputs; the last block of a matrix may be cut short by its row count.
template <class S>
void put(typename S::F value, float* y, int lanes, bool accumulate) {
    if (lanes >= S::kLanes) {
        S::store(y, accumulate ? S::add(S::load(y), value) : value);
        return;
    }
    float all[S::kLanes];
    S::store(all, value);
    for (int l = 0; l < lanes; ++l) y[l] = accumulate ? y[l] + all[l] : all[l];
}

template <class S, int kRows, int kBlocks>
void register_tile(const GemmArgs& args, int first_block, const PanelInput& x, int first_row) {
    const PackedMatrix& matrix = *args.weights;
    LaneBlock<S> w[kBlocks];
    for (int b = 0; b < kBlocks; ++b) w[b] = lane_block<S>(matrix, first_block + b, args.x->rows());
    Accumulators<S, kRows, kBlocks> acc;
    for (int r = 0; r < kRows; ++r) {
        for (int b = 0; b < kBlocks; ++b) acc[r][b] = S::zero();
    }
    const int groups = matrix.groups();
    switch (matrix.type) {
        case PackedType::F32:
            multiply_f32<S, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::BF16:
            multiply_bf16<S, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::F16:
            multiply_f16<S, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::Int8:
            multiply_int8<S, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::Q4:
            multiply_q4<S, kRows, kBlocks, true>(w, x, groups, acc);
            break;
        case PackedType::Q4Sym:
            multiply_q4<S, kRows, kBlocks, false>(w, x, groups, acc);
            break;
        case PackedType::Q5_0:
            multiply_blocks<S, PackedType::Q5_0, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::Q5_1:
            multiply_blocks<S, PackedType::Q5_1, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::Q2K:
            multiply_blocks<S, PackedType::Q2K, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::Q3K:
            multiply_blocks<S, PackedType::Q3K, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::Q4K:
            multiply_blocks<S, PackedType::Q4K, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::Q5K:
            multiply_blocks<S, PackedType::Q5K, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::Q6K:
            multiply_blocks<S, PackedType::Q6K, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::IQ4NL:
            multiply_blocks<S, PackedType::IQ4NL, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::IQ4XS:
            multiply_blocks<S, PackedType::IQ4XS, kRows, kBlocks>(w, x, groups, acc);
            break;
        case PackedType::MXFP4:
            multiply_blocks<S, PackedType::MXFP4, kRows, kBlocks>(w, x, groups, acc);
            break;
    }
    for (int r = 0; r < kRows; ++r) {
        for (int b = 0; b < kBlocks; ++b) {
            const int output = (first_block + b) * S::kLanes;
            put<S>(acc[r][b], args.y[first_row + r] + args.y_offset + output, matrix.rows - output,
                   args.accumulate);
        }
    }
}

template <class S>
PanelInput panel_input(const PackedRows& x, Panel panel) {
    switch (x.type()) {
        case ActivationType::F32:
            return {x.f32(panel), nullptr, nullptr, nullptr, nullptr, panel.width, 0};
        case ActivationType::BF16:
            return {x.bf16(panel), nullptr, nullptr, nullptr, nullptr, panel.width, 0};
        case ActivationType::Int8:
            break;
    }
    return {x.int8(panel),
            x.scales(panel),
            x.sums(panel),
            x.counts(panel),
            x.halves(panel),
            panel.width,
            0};
}

/// All rows of one panel against kBlocks lane blocks.
template <class S, int kRows, int kBlocks>
void panel_tile(const GemmArgs& args, int first_block, Panel panel) {
    PanelInput x = panel_input<S>(*args.x, panel);
    for (; x.row < panel.width; x.row += kRows) {
        register_tile<S, kRows, kBlocks>(args, first_block, x, panel.first_row + x.row);
    }
}

/// The rows of a panel of `width` that are computed at once.
template <class S>
constexpr int rows_at_once(int width) {
    return width < S::kRowsMax ? width : S::kRowsMax;
}

template <class S, int kBlocks>
void blocks_against_all_rows(const GemmArgs& args, int first_block) {
    const int rows = args.x->rows();
    for (int row = 0; row < rows;) {
        const Panel panel = panel_of(row, rows);
        switch (panel.width) {
            case 8:
                panel_tile<S, rows_at_once<S>(8), kBlocks>(args, first_block, panel);
                break;
            case 4:
                panel_tile<S, rows_at_once<S>(4), kBlocks>(args, first_block, panel);
                break;
            case 2:
                panel_tile<S, rows_at_once<S>(2), kBlocks>(args, first_block, panel);
                break;
            default:
                panel_tile<S, 1, kBlocks>(args, first_block, panel);
                break;
        }
        row += panel.width;
    }
}

template <class S>
void run(const GemmArgs& args, int first_tile, int last_tile) {
    constexpr int kPerTile = kTileRows / S::kLanes;
    const int last = last_tile * kPerTile;
    int block = first_tile * kPerTile;
    // Many rows: the weights come from the cache after the first panels, and two blocks share every
    // broadcast. Few rows: the weights stream from memory, and one stream is prefetched best: that
    // of one tile, whose cache lines hold all of its lane blocks.
    constexpr int kStreamingRowsMax = 4 * kPanelRows;
    if constexpr (S::kBlocksMax > 1) {
        if (kPerTile == 2 || args.x->rows() > kStreamingRowsMax) {
            for (; block + 2 <= last; block += 2) blocks_against_all_rows<S, 2>(args, block);
        }
    }
    for (; block < last; ++block) blocks_against_all_rows<S, 1>(args, block);
}

}  // namespace paceline::gemm

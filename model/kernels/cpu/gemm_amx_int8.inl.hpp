// Products of quantised weights by AMX tiles, of 16 rows at a time. Included only by
// kernels_amx.cpp.
//
// The integers of a group are multiplied and added exactly, as the AVX-512 kernels do it, and their
// sums are scaled and added in the same order by the same operations: the bits are those of
// AVX-512. Codes are written to a chunk as signed bytes, in the order of a B tile, once for up to
// 128 rows:
//
//     packed tile  --decode-->  Chunk: codes [groups][8][16][4] int8, scales of each run [16]
//     run of inputs that share a scale (32, or 16: has_halves()):
//         A [16 rows][run] int8  x  B [run / 4][16 outputs][4]  -->  sums [16][16] int32
//         sums  --scales-->  totals
//
// The sums of a run are scaled while the tiles of the next ones are multiplied.
#pragma once

#include <utility>

#include "model/kernels/cpu/amx_tiles.hpp"
#include "model/kernels/cpu/gemm.inl.hpp"

namespace paceline::amx {

inline constexpr int kChunkGroups = 32;  // decoded at once: 16 KiB, of a cache of 48
inline constexpr int kPanelsAtOnce = 8;  // of 16 rows, that share a chunk: 8 KiB of totals
inline constexpr int kSumsInFlight = 4;  // runs between a product and its scales, at most
inline constexpr int kGroupLines = 8;    // of 64 bytes: the int8 codes of a group

struct Chunk {
    alignas(64) std::uint8_t codes[kChunkGroups][kGroupLines * kLine];
    alignas(64) float scales[2 * kChunkGroups][kTileRows];    // of each run
    alignas(64) float minimums[2 * kChunkGroups][kTileRows];  // unused by forms without one
};

using Totals = float[kTileRowsMax][kTileRows];
using Sums = std::int32_t[kTileRowsMax][kTileRows];

template <PackedType kType>
inline constexpr int kRuns = has_halves(block_format(kType).form) ? 2 : 1;  // of a group

/// Where the parts of group g are, in bytes from the start of a tile.
template <PackedType kType>
[[gnu::always_inline]] inline GroupOffsets offsets_of(int g) {
    constexpr BlockFormat kFormat = block_format(kType);
    if constexpr (is_block_type(kType)) return group_offsets(kFormat, g);
    constexpr int kCodes = code_bytes(kFormat);
    constexpr int kScales = scale_bytes(kFormat.form);
    const int pair = g / 2 * 2 * (kCodes + kScales);
    return {0, pair + 2 * kCodes + g % 2 * kScales, pair + g % 2 * kCodes};
}

/// Writes the codes of a group, without their offset, and its scales to place `at` of the chunk.
template <PackedType kType>
[[gnu::always_inline]] inline void decode_group(const std::uint8_t* tile,
                                                int g,
                                                Chunk& chunk,
                                                int at) {
    using S = SimdAmx;
    constexpr BlockFormat kFormat = block_format(kType);
    const gemm::LaneBlock<S> w[1] = {{tile, tile, tile, false}};
    const GroupOffsets offsets = offsets_of<kType>(g);
    gemm::prefetch_group<S, gemm::lines(code_bytes(kFormat) + scale_bytes(kFormat.form))>(
        w, offsets.codes);
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(kFormat.offset));
    const auto write = [&](int line, __m512i codes) {
        _mm512_store_si512(chunk.codes[at] + line * kLine, _mm512_sub_epi8(codes, offset));
    };
    [&]<int... kWord>(std::integer_sequence<int, kWord...>) {
        (write(kWord, gemm::load_codes<S, kType, kWord>(w[0], offsets.codes)), ...);
    }
    (std::make_integer_sequence<int, kGroupLines>{});
    for (int h = 0; h < kRuns<kType>; ++h) {
        const gemm::LaneScale<S> of = gemm::load_scale<S, kType>(w[0], offsets, g, h);
        S::store(chunk.scales[kRuns<kType> * at + h], of.scale);
        if constexpr (has_minimum(kFormat.form))
            S::store(chunk.minimums[kRuns<kType> * at + h], of.minimum);
    }
}

/// The inputs of 16 rows from a chunk's first group on (PackedRows with a panel of kWideRows).
struct WideInput {
    const std::int8_t* values;  // [16][columns]
    std::ptrdiff_t stride;      // of a row
    const float* scales;        // [groups][16], as the others
    const float* sums;
    const std::int32_t* counts;
    const std::int32_t* halves;
};

/// What the minima of a run are multiplied with, of 16 rows: the sums of its inputs.
template <PackedType kType>
[[gnu::always_inline]] inline __m512 inputs_of(const WideInput& x, int run) {
    const int at = run / kRuns<kType> * kWideRows;
    if constexpr (kRuns<kType> == 1) return SimdAmx::load(x.sums + at);
    const __m512i first = _mm512_loadu_si512(x.halves + at);
    const __m512i all = _mm512_loadu_si512(x.counts + at);
    const __m512i count = run % 2 == 0 ? first : _mm512_sub_epi32(all, first);
    return SimdAmx::mul(SimdAmx::load(x.scales + at), SimdAmx::to_float(count));
}

/// Adds a run's sums, scaled, to the totals.
template <PackedType kType>
[[gnu::always_inline]] inline void add_run(
    const Chunk& chunk, const WideInput& x, int run, const Sums& sums, __m512 (&totals)[16]) {
    using S = SimdAmx;
    constexpr bool kMinimum = has_minimum(block_format(kType).form);
    const float* scale = x.scales + run / kRuns<kType> * kWideRows;
    const __m512 d = S::load(chunk.scales[run]);
    const __m512 m = kMinimum ? S::load(chunk.minimums[run]) : S::zero();
    alignas(64) float inputs[kWideRows];
    if constexpr (kMinimum) S::store(inputs, inputs_of<kType>(x, run));
#pragma GCC unroll 16
    for (int r = 0; r < kWideRows; ++r) {
        const __m512 product = S::mul(d, S::set1(scale[r]));
        totals[r] = S::fma(S::to_float(_mm512_load_si512(sums[r])), product, totals[r]);
        if constexpr (kMinimum) totals[r] = S::fma(m, S::set1(inputs[r]), totals[r]);
    }
}

/// Adds the products of a chunk with 16 rows. Tiles: 0 is C, 1 A, 2 B.
template <PackedType kType>
void add_chunk(const Chunk& chunk, int groups, const WideInput& x, Totals& kept) {
    constexpr int kInputs = kGroup / kRuns<kType>;
    constexpr int kCodeBytes = kInputs * kTileRows;
    alignas(64) Sums sums[kSumsInFlight];
    __m512 totals[kWideRows];
#pragma GCC unroll 16
    for (int r = 0; r < kWideRows; ++r) totals[r] = SimdAmx::load(kept[r]);
    const int runs = groups * kRuns<kType>;
    for (int run = 0; run < runs; ++run) {
        tile_zero<0>();
        tile_load<1>(x.values + run * kInputs, x.stride);
        tile_load<2>(chunk.codes[0] + run * kCodeBytes, kLine);
        tile_dot_int8<0, 1, 2>();
        tile_store<0>(sums[run % kSumsInFlight], sizeof sums[0][0]);
        if (run > 0) add_run<kType>(chunk, x, run - 1, sums[(run - 1) % kSumsInFlight], totals);
    }
    add_run<kType>(chunk, x, runs - 1, sums[(runs - 1) % kSumsInFlight], totals);
#pragma GCC unroll 16
    for (int r = 0; r < kWideRows; ++r) SimdAmx::store(kept[r], totals[r]);
}

inline WideInput wide_input(const PackedRows& rows, int panel, int group) {
    const Panel p{panel * kWideRows, kWideRows};
    const std::ptrdiff_t at = std::ptrdiff_t{group} * kWideRows;
    return {rows.int8(p) + std::ptrdiff_t{group} * kGroup,
            std::ptrdiff_t{kGroup} * rows.groups(),
            rows.scales(p) + at,
            rows.sums(p) + at,
            rows.counts(p) + at,
            rows.halves(p) + at};
}

/// Outputs of a tile for panels [first, last) of 16 rows, at most kPanelsAtOnce.
template <PackedType kType>
void wide_outputs(const GemmArgs& args, int tile, int first, int last) {
    const PackedMatrix& matrix = *args.weights;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(matrix.data) +
                        static_cast<std::size_t>(tile) * matrix.tile_bytes();
    Chunk chunk;
    alignas(64) Totals totals[kPanelsAtOnce] = {};
    for (int from = 0; from < matrix.groups(); from += kChunkGroups) {
        const int groups = std::min(kChunkGroups, matrix.groups() - from);
        for (int g = 0; g < groups; ++g) decode_group<kType>(bytes, from + g, chunk, g);
        for (int p = first; p < last; ++p)
            add_chunk<kType>(chunk, groups, wide_input(*args.x, p, from), totals[p - first]);
    }
    const int output = tile * kTileRows;
    for (int row = first * kWideRows; row < last * kWideRows; ++row) {
        const float* from = totals[row / kWideRows - first][row % kWideRows];
        gemm::put<SimdAmx>(SimdAmx::load(from), args.y[row] + args.y_offset + output,
                           matrix.rows - output, args.accumulate);
    }
}

/// KernelTable::gemm of the first `panels` times 16 rows.
template <PackedType kType>
void multiply_wide(const GemmArgs& args, int panels, int first_tile, int last_tile) {
    constexpr int kInputs = kGroup / kRuns<kType>;
    const AmxTiles tiles{{kTileRowsMax, kLine}, {kTileRowsMax, kInputs}, {kInputs / 4, kLine}};
    for (int tile = first_tile; tile < last_tile; ++tile) {
        for (int p = 0; p < panels; p += kPanelsAtOnce)
            wide_outputs<kType>(args, tile, p, std::min(p + kPanelsAtOnce, panels));
    }
}

}  // namespace paceline::amx

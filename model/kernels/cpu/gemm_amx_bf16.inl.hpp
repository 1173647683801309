// Products of bfloat16 weights by AMX tiles, for any number of rows. Included only by
// kernels_amx.cpp.
//
// A group of 32 inputs of a tile of 16 outputs is one B tile as it lies in memory. Rows are taken
// 16 at a time as A tiles, the last ones in a tile of fewer rows; up to five A tiles share each B
// tile. A row's sums are the same instructions whatever tile it is in, so its bits depend on no
// other row.
#pragma once

#include "model/kernels/cpu/amx_tiles.hpp"
#include "model/kernels/cpu/gemm.inl.hpp"

namespace paceline::amx {

inline constexpr int kGroupBytes = kGroup * kTileRows * 2;  // of a tile
inline constexpr int kWholeMax = 4;  // A tiles of 16 rows at once, besides one of fewer

/// Which registers hold what.
enum : int { kFirstC = 0, kRestC = kWholeMax, kWholeA, kRestA, kB };

struct Bf16Input {
    const std::uint16_t* rows;  // [rows][columns]
    std::ptrdiff_t stride;      // bytes of a row
};

/// Asks for a group of weights up to the L2 cache; in the L1 it would take the place of rows that
/// all tiles read.
[[gnu::always_inline]] inline void prefetch_far(const std::byte* group) {
#pragma GCC unroll 16
    for (int line = 0; line < kGroupBytes / kLine; ++line)
        _mm_prefetch(group + std::ptrdiff_t{line} * kLine, _MM_HINT_T1);
}

/// 16 outputs of kWhole times 16 rows, and of the remaining rows if kRest; `x` is the first one's.
template <int kWhole, bool kRest>
void add_products(const std::byte* tile_data, const Bf16Input& x, int groups) {
    constexpr int kPart = kTileRowsMax;  // rows of an A tile
    if constexpr (kWhole > 0) tile_zero<kFirstC>();
    if constexpr (kWhole > 1) tile_zero<kFirstC + 1>();
    if constexpr (kWhole > 2) tile_zero<kFirstC + 2>();
    if constexpr (kWhole > 3) tile_zero<kFirstC + 3>();
    if constexpr (kRest) tile_zero<kRestC>();
    const auto* a = reinterpret_cast<const std::uint8_t*>(x.rows);
    const std::ptrdiff_t part = kPart * x.stride;
    for (int g = 0; g < groups; ++g, a += kRowBytesMax) {
        const std::byte* weights = tile_data + std::ptrdiff_t{g} * kGroupBytes;
        prefetch_far(weights + gemm::kAhead);
        tile_load<kB>(weights, kRowBytesMax);
        if constexpr (kWhole > 0) {
            tile_load<kWholeA>(a, x.stride);
            tile_dot_bf16<kFirstC, kWholeA, kB>();
        }
        if constexpr (kWhole > 1) {
            tile_load<kWholeA>(a + part, x.stride);
            tile_dot_bf16<kFirstC + 1, kWholeA, kB>();
        }
        if constexpr (kWhole > 2) {
            tile_load<kWholeA>(a + 2 * part, x.stride);
            tile_dot_bf16<kFirstC + 2, kWholeA, kB>();
        }
        if constexpr (kWhole > 3) {
            tile_load<kWholeA>(a + 3 * part, x.stride);
            tile_dot_bf16<kFirstC + 3, kWholeA, kB>();
        }
        if constexpr (kRest) {
            tile_load<kRestA>(a + kWhole * part, x.stride);
            tile_dot_bf16<kRestC, kRestA, kB>();
        }
    }
}

/// Writes tile kTile, the sums of `rows` rows from `first_row` on, to the outputs of `tile`.
template <int kTile>
void put_sums(const GemmArgs& args, int tile, int first_row, int rows) {
    alignas(64) float sums[kTileRowsMax][kTileRows];
    tile_store<kTile>(sums, sizeof sums[0]);
    const int output = tile * kTileRows;
    for (int r = 0; r < rows; ++r)
        gemm::put<SimdAmx>(SimdAmx::load(sums[r]), args.y[first_row + r] + args.y_offset + output,
                           args.weights->rows - output, args.accumulate);
}

/// Outputs of a tile for kWhole times 16 rows from `first_row` on, and for the `rest` after them.
template <int kWhole, bool kRest>
void outputs_of(const GemmArgs& args, const Bf16Input& x, int tile, int first_row, int rest) {
    const PackedMatrix& matrix = *args.weights;
    const std::byte* tile_data = matrix.data + static_cast<std::size_t>(tile) * matrix.tile_bytes();
    add_products<kWhole, kRest>(tile_data, x, matrix.groups());
    constexpr int kPart = kTileRowsMax;
    if constexpr (kWhole > 0) put_sums<kFirstC>(args, tile, first_row, kPart);
    if constexpr (kWhole > 1) put_sums<kFirstC + 1>(args, tile, first_row + kPart, kPart);
    if constexpr (kWhole > 2) put_sums<kFirstC + 2>(args, tile, first_row + 2 * kPart, kPart);
    if constexpr (kWhole > 3) put_sums<kFirstC + 3>(args, tile, first_row + 3 * kPart, kPart);
    if constexpr (kRest) put_sums<kRestC>(args, tile, first_row + kWhole * kPart, rest);
}

template <bool kRest>
void outputs_of(
    int whole, const GemmArgs& args, const Bf16Input& x, int tile, int first_row, int rest) {
    switch (whole) {
        case 0:
            return outputs_of<0, kRest>(args, x, tile, first_row, rest);
        case 1:
            return outputs_of<1, kRest>(args, x, tile, first_row, rest);
        case 2:
            return outputs_of<2, kRest>(args, x, tile, first_row, rest);
        case 3:
            return outputs_of<3, kRest>(args, x, tile, first_row, rest);
        default:
            return outputs_of<kWholeMax, kRest>(args, x, tile, first_row, rest);
    }
}

/// KernelTable::gemm of BF16; the activations are packed row by row (PackedRows::bf16_row()).
inline void multiply_bf16(const GemmArgs& args, int first_tile, int last_tile) {
    const PackedRows& rows = *args.x;
    const int whole = rows.rows() / kTileRowsMax;
    const int rest = rows.rows() % kTileRowsMax;
    const std::ptrdiff_t stride = std::ptrdiff_t{2} * kGroup * rows.groups();
    const TileShape full{kTileRowsMax, kRowBytesMax};
    const TileShape fewer{rest, kRowBytesMax};
    const AmxTiles tiles{full, full, full, full, fewer, full, fewer, full};
    for (int tile = first_tile; tile < last_tile; ++tile) {
        int done = 0;
        for (; whole - done > kWholeMax; done += kWholeMax) {
            const int row = done * kTileRowsMax;
            outputs_of<false>(kWholeMax, args, {rows.bf16_row(row), stride}, tile, row, 0);
        }
        const int row = done * kTileRowsMax;
        const Bf16Input x{rows.bf16_row(row), stride};
        if (rest > 0) {
            outputs_of<true>(whole - done, args, x, tile, row, rest);
        } else {
            outputs_of<false>(whole - done, args, x, tile, row, 0);
        }
    }
}

}  // namespace paceline::amx

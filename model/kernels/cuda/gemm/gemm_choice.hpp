// How a product is spread over the device: pure arithmetic, but for launch_gemm_as().
//
// Free to choose as it likes: no choice changes a bit of a product (gemm.hpp).
//
// C++17.
#pragma once

#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline::cuda {

/// Of a block of the tiled kernel.
inline constexpr int kLargeTile = 128;  // outputs, and rows
inline constexpr int kSmallTile = 64;
/// Products of more rows are tiled if their small tiles occupy most of the device; those of more
/// than kBatchRows always are.
inline constexpr int kTiledRowsAbove = 32;
/// Weights that stay in the L2 cache while all blocks read them, at 2 bytes each.
inline constexpr long kCachedWeights = 2L << 20;

struct GemmChoice {
    int tile = 0;        // kLargeTile or kSmallTile of the tiled kernel; 0: the batch kernel, where
    int row_tiles = 1;   // a block has so many tiles of kTileRows rows: 1, 2, 4 or 8
    int tiles = 1;       // and of outputs: 1 or 2
    int groups = 1;      // of row_tiles * kTileRows rows: blocks in the grid's other direction
    bool wgmma = false;  // the tiled kernel for bf16 that multiplies by it
};

[[nodiscard]] constexpr int divided_up(int a, int b) {
    return (a + b - 1) / b;
}

/// Whether so many blocks keep so many processors busy: one may stand idle of eight.
[[nodiscard]] constexpr bool fills(int blocks, int processors) {
    return blocks * 8 >= processors * 7;
}

/// Tiles of outputs that a block of the batch kernel can have. More sums than these a thread has no
/// registers for.
[[nodiscard]] constexpr int tiles_max(WeightType type, int row_tiles) {
    if (type == WeightType::F32 || row_tiles == 1 || is_block_type(type)) return 1;
    return type != WeightType::BF16 && type != WeightType::Int8 && row_tiles == 8 ? 1 : 2;
}

/// Tiles of rows that a block of the batch kernel gets: as many as its rows come to, for weights
/// are read once for each group of rows. Small products do better with more blocks, and unpacked
/// types have no registers for more (both measured: bench/results/h200).
[[nodiscard]] constexpr int row_tiles_for(const DeviceMatrix& matrix, int rows) {
    const long weights = static_cast<long>(matrix.tiles()) * kTileOutputs * matrix.inputs;
    const int most = weights <= kCachedWeights ? 1 : is_block_type(matrix.type) ? 2 : 4;
    int row_tiles = 1;
    while (row_tiles < most && rows > row_tiles * kTileRows) row_tiles *= 2;
    return row_tiles;
}

[[nodiscard]] constexpr GemmChoice choose_gemm(const DeviceMatrix& matrix, const GemmLaunch& how) {
    GemmChoice choice;
    const int tiles = matrix.tiles();
    const auto squares = [&](int tile) {
        return divided_up(tiles * kTileOutputs, tile) * divided_up(how.rows, tile);
    };
    const bool can_wgmma = how.wgmma && matrix.type == WeightType::BF16;
    if (matrix.type != WeightType::F32 && how.rows > kBatchRows) {
        choice.wgmma = can_wgmma;
        choice.tile = fills(squares(kLargeTile), how.processors) ? kLargeTile : kSmallTile;
        return choice;
    }
    choice.row_tiles = row_tiles_for(matrix, how.rows);
    const bool mostly_fills = squares(kSmallTile) * 8 >= how.processors * 5;
    if (matrix.type != WeightType::F32 && how.rows > kTiledRowsAbove && choice.row_tiles > 1 &&
        mostly_fills) {
        choice.row_tiles = 1;
        choice.tile = kSmallTile;
        choice.wgmma = can_wgmma && fills(squares(kSmallTile), how.processors);
        return choice;
    }
    choice.groups = divided_up(how.rows, choice.row_tiles * kTileRows);
    // Rows come through the caches once for each block: blocks of two tiles ask for them half as
    // often. Up to 16 rows that gains nothing.
    if (choice.row_tiles > 2 && tiles_max(matrix.type, choice.row_tiles) == 2 &&
        fills(divided_up(tiles, 2) * choice.groups, how.processors))
        choice.tiles = 2;
    return choice;
}

/// launch_gemm() with a choice of the caller's, for tests and benches. `rows`: at most, of the
/// call. RowNorm::factors is not scratch here: nullptr, or factors that are there. Throws
/// DeviceError if the choice does not cover the rows.
void launch_gemm_as(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows);

}  // namespace paceline::cuda

// How a product is spread over the device: pure arithmetic, but for launch_gemm_as().
//
// Free to choose as it likes: no choice changes a bit of a product (gemm.hpp). The rules follow
// what an H200 showed of every kernel (bench/results/h200, "ladder"):
//
//     rows        small weights   others
//     1 .. 8      16 x 8          16 x 8
//     9 .. 16     16 x 8          the type's block of two tiles of rows
//     17 .. 64    16 x 8, 16 x 16 the type's largest block, or 64 x 64 where that fills the device
//     65 ..128    16 x 16         64 x 64 or 128 x 128; blocks as before where those leave much of
//                                 the device idle
//     129 ..      64 x 64 or 128 x 128
//
// A block of the batch kernel is named by its outputs x rows.
// C++17.
#pragma once

#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline::cuda {

/// Of a block of the tiled kernel.
inline constexpr int kLargeTile = 128;  // outputs, and rows
inline constexpr int kSmallTile = 64;
/// Weights that stay in the L2 cache while all blocks read them, at 2 bytes each. Products of them
/// take what a block takes, so they get many small ones.
inline constexpr long kCachedWeights = 2L << 20;

struct GemmChoice {
    int tile = 0;        // kLargeTile or kSmallTile of the tiled kernel; 0: the batch kernel, where
    int row_tiles = 1;   // a block has so many tiles of kTileRows rows: 1, 2 or 4
    int tiles = 1;       // and of outputs: batch_tiles()
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

/// Tiles of outputs of the batch kernel for a type and tiles of rows; 0: there is no such kernel,
/// because it was never the fastest.
[[nodiscard]] constexpr int batch_tiles(WeightType type, int row_tiles) {
    const bool nibbles = type == WeightType::Q4 || type == WeightType::Q4Sym;
    switch (row_tiles) {
        case 1:
            return 1;
        case 2:
            return nibbles ? 2 : 1;
        case 4:
            return nibbles || is_block_type(type) ? 0 : type == WeightType::F32 ? 1 : 2;
        default:
            return 0;
    }
}

[[nodiscard]] constexpr GemmChoice batch_choice(WeightType type, int row_tiles, int rows) {
    return {0, row_tiles, batch_tiles(type, row_tiles), divided_up(rows, row_tiles * kTileRows)};
}

[[nodiscard]] constexpr bool has_small_weights(const DeviceMatrix& matrix) {
    return static_cast<long>(matrix.tiles()) * kTileOutputs * matrix.inputs <= kCachedWeights;
}

/// Of the batch kernel, for any number of rows.
[[nodiscard]] constexpr GemmChoice choose_batch(const DeviceMatrix& matrix, const GemmLaunch& how) {
    const WeightType type = matrix.type;
    if (how.rows <= kTileRows) return batch_choice(type, 1, how.rows);
    if (has_small_weights(matrix)) return batch_choice(type, how.rows <= 32 ? 1 : 2, how.rows);
    const GemmChoice two = batch_choice(type, 2, how.rows);
    if (how.rows <= 2 * kTileRows || batch_tiles(type, 4) == 0) return two;
    // Weights are read once for each group. Few tiles do better with two groups of them.
    const bool few = matrix.tiles() * two.groups <= 2 * how.processors;
    return few && type == WeightType::BF16 ? two : batch_choice(type, 4, how.rows);
}

[[nodiscard]] constexpr GemmChoice choose_tiled(const DeviceMatrix& matrix, const GemmLaunch& how) {
    const auto squares = [&](int tile) {
        return divided_up(matrix.tiles() * kTileOutputs, tile) * divided_up(how.rows, tile);
    };
    GemmChoice choice;
    choice.wgmma = how.wgmma && matrix.type == WeightType::BF16;
    const bool large = how.rows > kSmallTile && fills(squares(kLargeTile), how.processors);
    choice.tile = large ? kLargeTile : kSmallTile;
    // Up to one tile of rows wgmma gains only where every processor has a tile.
    if (how.rows <= kSmallTile && !fills(squares(kSmallTile), how.processors)) choice.wgmma = false;
    return choice;
}

[[nodiscard]] constexpr GemmChoice choose_gemm(const DeviceMatrix& matrix, const GemmLaunch& how) {
    const WeightType type = matrix.type;
    if (type == WeightType::F32 || how.rows <= 2 * kTileRows) return choose_batch(matrix, how);
    const int squares =
        divided_up(matrix.tiles() * kTileOutputs, kSmallTile) * divided_up(how.rows, kSmallTile);
    const bool filled = fills(squares, how.processors);
    const bool mostly_filled = squares * 8 >= how.processors * 5;
    const bool unpacked = type == WeightType::BF16 || is_block_type(type);
    const GemmChoice tiled = choose_tiled(matrix, how);
    bool takes_tiled = true;
    if (how.rows <= 32) {
        takes_tiled = tiled.wgmma && filled;
    } else if (how.rows <= kBatchRows) {
        takes_tiled = unpacked ? mostly_filled : filled;
    } else if (how.rows <= 2 * kBatchRows) {
        takes_tiled = mostly_filled;
    }
    if (how.rows <= 2 * kBatchRows && has_small_weights(matrix)) takes_tiled = false;
    return takes_tiled ? tiled : choose_batch(matrix, how);
}

/// launch_gemm() with a choice of the caller's, for tests and benches. `rows`: at most, of the
/// call. RowNorm::factors is not scratch here: nullptr, or factors that are there. Throws
/// DeviceError if the choice does not cover the rows.
void launch_gemm_as(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows);

}  // namespace paceline::cuda

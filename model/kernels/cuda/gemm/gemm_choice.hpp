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
/// Products of more rows are tiled where there is wgmma; elsewhere those of more than kBatchRows.
inline constexpr int kWgmmaRowsAbove = 32;

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

/// Rows come through the caches once for each block: blocks of more outputs ask for them less
/// often, as long as there are enough of them. More sums than these a thread has no registers for.
/// Block types have thread blocks of one tile alone: two tiles were not measured on a GPU, and
/// would double the kernels to compile.
[[nodiscard]] constexpr int tiles_max(WeightType type, int row_tiles) {
    if (type == WeightType::F32 || row_tiles == 1 || is_block_type(type)) return 1;
    return type != WeightType::BF16 && type != WeightType::Int8 && row_tiles == 8 ? 1 : 2;
}

[[nodiscard]] constexpr GemmChoice choose_gemm(const DeviceMatrix& matrix, const GemmLaunch& how) {
    GemmChoice choice;
    const int tiles = matrix.tiles();
    const bool wgmma = how.wgmma && matrix.type == WeightType::BF16;
    if (matrix.type != WeightType::F32 && how.rows > (wgmma ? kWgmmaRowsAbove : kBatchRows)) {
        choice.wgmma = wgmma;
        for (const int tile : {kLargeTile, kSmallTile}) {
            choice.tile = tile;
            if (fills(divided_up(tiles * kTileOutputs, tile) * divided_up(how.rows, tile),
                      how.processors))
                break;
        }
        return choice;
    }
    while (choice.row_tiles < kBatchRows / kTileRows && how.rows > choice.row_tiles * kTileRows)
        choice.row_tiles *= 2;
    choice.groups = divided_up(how.rows, choice.row_tiles * kTileRows);
    if (tiles_max(matrix.type, choice.row_tiles) == 2 &&
        fills(divided_up(tiles, 2) * choice.groups, how.processors))
        choice.tiles = 2;
    return choice;
}

/// launch_gemm() with a choice of the caller's, for tests and benches. `rows`: at most, of the
/// call. RowNorm::factors is not scratch here: nullptr, or factors that are there. Throws
/// DeviceError if the choice does not cover the rows.
void launch_gemm_as(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows);

}  // namespace paceline::cuda

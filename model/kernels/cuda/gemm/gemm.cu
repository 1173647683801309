// launch_gemm(): which kernel, and what it needs beforehand.
//
// Next, where it can be measured: a persistent kernel for models whose layers are shorter than a
// launch.
#include "model/kernels/cuda/gemm/gemm.hpp"
#include "model/kernels/cuda/gemm/gemm_kernels.hpp"
#include "model/kernels/cuda/rows.hpp"

namespace paceline::cuda {

void launch_gemm(Stream& stream, const GemmArgs& args, const GemmLaunch& how) {
    if (how.rows < 1 || how.rows > kGemmRowsMax || how.processors < 1)
        throw DeviceError("a product: no kernel for so many rows");
    GemmArgs kernel_args = args;
    RowNorm& norm = kernel_args.finish.norm;
    float* const factors = norm.factors;
    norm.factors = nullptr;
    if (norm.squares != nullptr && factors != nullptr && how.rows > kFusedNormRows) {
        if (!norm.ready) launch_norm_factors(stream, {norm, args.rows, factors}, how.rows);
        norm.factors = factors;
    }
    launch_gemm_as(stream, kernel_args, choose_gemm(args.weights, how), how.rows);
}

void launch_gemm_as(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows) {
    if (choice.tile > 0 && choice.wgmma) return launch_gemm_tiled_wgmma(stream, args, choice, rows);
    if (choice.tile > 0) return launch_gemm_tiled(stream, args, choice, rows);
    if (choice.groups * choice.row_tiles * kTileRows < rows ||
        choice.tiles != batch_tiles(args.weights.type, choice.row_tiles))
        throw DeviceError("a product: its blocks do not cover its rows");
    launch_gemm_batch(stream, args, choice);
}

}  // namespace paceline::cuda

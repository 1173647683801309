// What launch_gemm() does, by cuBLAS and a kernel after it: for `exact = off`, and for nothing
// else, since the bits of a row then depend on the rows beside it (blas.hpp).
//
//     cuBLAS     y = W x, of a paired matrix gate and up beside each other, in floats
//     finish     norm factor and Finish, with the functions that are fused after our own products
//
// cuBLAS knows no row count in device memory: a batch that was stopped is multiplied to its end,
// and only then finished for none of its rows.
//
// C++17.
#pragma once

#include "model/kernels/cuda/blas.hpp"
#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline::cuda {

/// Below, weights' bytes are what a product waits for, and our own kernel is as quick.
inline constexpr int kBlasRowsMin = kBatchRows + 1;

/// Whether cuBLAS can multiply it as it lies: rows of bf16.
[[nodiscard]] constexpr bool blas_takes(const DeviceMatrix& matrix) {
    return matrix.type == WeightType::BF16;
}

/// Floats of a row of y, and so of `scratch` below.
[[nodiscard]] constexpr int blas_floats(const DeviceMatrix& matrix) {
    return matrix.paired ? 2 * matrix.outputs : matrix.outputs;
}

/// Puts the product for exactly `rows` rows into the stream that `blas` is on; the finish takes as
/// many of them as *args.rows says. x holds `rows` rows. `scratch`: [rows][blas_floats()], not
/// touched by FinishKind::Store.
void launch_gemm_blas(Stream& stream, Blas& blas, const GemmArgs& args, int rows, float* scratch);

}  // namespace paceline::cuda

// The kernels after launch_gemm(), each as the choice says. Included by gemm*.cu alone.
#pragma once

#include "model/kernels/cuda/gemm_choice.hpp"

namespace paceline::cuda {

void launch_gemm_batch(Stream& stream, const GemmArgs& args, const GemmChoice& choice);
/// `rows`: at most, of the call. Not for F32.
void launch_gemm_tiled(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows);
/// The same for BF16 alone, where has_wgmma().
void launch_gemm_tiled_wgmma(Stream& stream,
                             const GemmArgs& args,
                             const GemmChoice& choice,
                             int rows);

}  // namespace paceline::cuda

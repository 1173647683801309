// The kernels that launch_gemm() chooses from. Included by the sources of this folder alone.
#pragma once

#include <type_traits>

#include "ipc/base/check.hpp"
#include "model/kernels/cuda/gemm/gemm_choice.hpp"

namespace paceline::cuda {

/// Calls call(std::integral_constant<WeightType, type>).
template <class Call>
void with_type(WeightType type, const Call& call) {
    switch (type) {
#define PACE_CASE(name)    \
    case WeightType::name: \
        return call(std::integral_constant<WeightType, WeightType::name>{})
        PACE_CASE(F32);
        PACE_CASE(BF16);
        PACE_CASE(Int8);
        PACE_CASE(Q4);
        PACE_CASE(Q4Sym);
        PACE_CASE(Q5_0);
        PACE_CASE(Q5_1);
        PACE_CASE(Q2K);
        PACE_CASE(Q3K);
        PACE_CASE(Q4K);
        PACE_CASE(Q5K);
        PACE_CASE(Q6K);
        PACE_CASE(IQ4NL);
        PACE_CASE(IQ4XS);
        PACE_CASE(MXFP4);
#undef PACE_CASE
        case WeightType::F16:
            PACE_CHECK(false, "F16 is BF16 on a GPU: gpu_type()");
    }
}

/// How the product is spread over the device is `choice`.
void launch_gemm_batch(Stream& stream, const GemmArgs& args, const GemmChoice& choice);
template <WeightType kType>
void launch_gemm_batch_of(Stream& stream, const GemmArgs& args, const GemmChoice& choice);

/// The same for many rows; `rows` is the most that the call may have. Not for F32.
void launch_gemm_tiled(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows);
template <WeightType kType>
void launch_gemm_tiled_of(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows);
/// The same by wgmma, for BF16 alone where has_wgmma().
void launch_gemm_tiled_wgmma(Stream& stream,
                             const GemmArgs& args,
                             const GemmChoice& choice,
                             int rows);

}  // namespace paceline::cuda

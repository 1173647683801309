// The wave kernel with WaveCode::FinishAhead, where has_wave_variants(): quantised and bf16 weights,
// up to 16 rows. A file of its own so that it compiles beside gemm_wave.cu.
#include "model/kernels/cuda/gemm_kernels.hpp"
#include "model/kernels/cuda/gemm_wave.cuh"

namespace paceline::cuda {
namespace {

template <WeightType kType>
void launch_rows(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    if (choice.row_tiles == 1)
        return launch_wave_tiles<kType, 1, WaveCode::FinishAhead>(stream, args, choice);
    launch_wave_tiles<kType, 2, WaveCode::FinishAhead>(stream, args, choice);
}

}  // namespace

void launch_gemm_wave_variant(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    switch (args.weights.type) {
        case WeightType::BF16:
            return launch_rows<WeightType::BF16>(stream, args, choice);
        case WeightType::Int8:
            return launch_rows<WeightType::Int8>(stream, args, choice);
        case WeightType::Q4:
            return launch_rows<WeightType::Q4>(stream, args, choice);
        case WeightType::F32:
            break;
    }
    throw DeviceError("a product of floats: the wave kernel has no variants for it");
}

}  // namespace paceline::cuda

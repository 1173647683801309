// The wave kernel with the code of each variant, where has_wave_variants(): quantised and bf16 weights,
// up to 16 rows. A file of its own so that it compiles beside gemm_wave.cu.
#include "model/kernels/cuda/gemm_kernels.hpp"
#include "model/kernels/cuda/gemm_wave.cuh"

namespace paceline::cuda {
namespace {

template <WeightType kType, WaveCode kCode>
void launch_rows(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    if (choice.row_tiles == 1) return launch_wave_tiles<kType, 1, kCode>(stream, args, choice);
    launch_wave_tiles<kType, 2, kCode>(stream, args, choice);
}

template <WeightType kType>
void launch_code(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    switch (choice.code) {
        case WaveCode::RowsAhead:
            return launch_rows<kType, WaveCode::RowsAhead>(stream, args, choice);
        case WaveCode::FinishAhead:
            return launch_rows<kType, WaveCode::FinishAhead>(stream, args, choice);
        case WaveCode::L2Hint128:
            return launch_rows<kType, WaveCode::L2Hint128>(stream, args, choice);
        case WaveCode::L2Hint256:
            return launch_rows<kType, WaveCode::L2Hint256>(stream, args, choice);
        case WaveCode::All:
            return launch_rows<kType, WaveCode::All>(stream, args, choice);
        case WaveCode::Base:
        case WaveCode::NotCompiled:
            break;
    }
    throw DeviceError("a product: this variant of the wave kernel is not compiled");
}

}  // namespace

void launch_gemm_wave_variant(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    switch (args.weights.type) {
        case WeightType::BF16:
            return launch_code<WeightType::BF16>(stream, args, choice);
        case WeightType::Int8:
            return launch_code<WeightType::Int8>(stream, args, choice);
        case WeightType::Q4:
            return launch_code<WeightType::Q4>(stream, args, choice);
        case WeightType::F32:
            break;
    }
    throw DeviceError("a product of floats: the wave kernel has no variants for it");
}

}  // namespace paceline::cuda

// The batch kernel for all types of weights and all numbers of rows.
#include "model/kernels/cuda/gemm_batch.cuh"
#include "model/kernels/cuda/gemm_kernels.hpp"

namespace paceline::cuda {
namespace {

template <WeightType kType>
void launch_rows(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    switch (choice.row_tiles) {
        case 1:
            return launch_batch_tiles<kType, 1>(stream, args, choice);
        case 2:
            return launch_batch_tiles<kType, 2>(stream, args, choice);
        case 4:
            return launch_batch_tiles<kType, 4>(stream, args, choice);
        default:
            return launch_batch_tiles<kType, 8>(stream, args, choice);
    }
}

}  // namespace

void launch_gemm_batch(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    switch (args.weights.type) {
        case WeightType::F32:
            return launch_rows<WeightType::F32>(stream, args, choice);
        case WeightType::BF16:
            return launch_rows<WeightType::BF16>(stream, args, choice);
        case WeightType::Int8:
            return launch_rows<WeightType::Int8>(stream, args, choice);
        case WeightType::Q4:
            return launch_rows<WeightType::Q4>(stream, args, choice);
    }
}

}  // namespace paceline::cuda

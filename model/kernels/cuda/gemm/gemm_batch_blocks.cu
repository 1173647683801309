// The batch kernel for block types of 32 numbers.
#include "model/kernels/cuda/gemm/gemm_batch.cuh"

namespace paceline::cuda {

template void launch_gemm_batch_of<WeightType::Q5_0>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::Q5_1>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::IQ4NL>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::MXFP4>(Stream&, const GemmArgs&, const GemmChoice&);

}  // namespace paceline::cuda

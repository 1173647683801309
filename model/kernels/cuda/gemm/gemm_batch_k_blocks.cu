// The batch kernel for block types of 256 numbers.
#include "model/kernels/cuda/gemm/gemm_batch.cuh"

namespace paceline::cuda {

template void launch_gemm_batch_of<WeightType::Q2K>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::Q3K>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::Q4K>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::Q5K>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::Q6K>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::IQ4XS>(Stream&, const GemmArgs&, const GemmChoice&);

}  // namespace paceline::cuda

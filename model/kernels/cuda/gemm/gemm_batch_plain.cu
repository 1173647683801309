// The batch kernel for float32 and bf16.
#include "model/kernels/cuda/gemm/gemm_batch.cuh"

namespace paceline::cuda {

template void launch_gemm_batch_of<WeightType::F32>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::BF16>(Stream&, const GemmArgs&, const GemmChoice&);

}  // namespace paceline::cuda

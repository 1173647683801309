// The batch kernel for int8 and q4.
#include "model/kernels/cuda/gemm/gemm_batch.cuh"

namespace paceline::cuda {

template void launch_gemm_batch_of<WeightType::Int8>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::Q4>(Stream&, const GemmArgs&, const GemmChoice&);
template void launch_gemm_batch_of<WeightType::Q4Sym>(Stream&, const GemmArgs&, const GemmChoice&);

}  // namespace paceline::cuda

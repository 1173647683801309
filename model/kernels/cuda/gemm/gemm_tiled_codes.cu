// The tiled kernel for bf16, int8 and q4.
#include "model/kernels/cuda/gemm/gemm_tiled.cuh"

namespace paceline::cuda {

template void launch_gemm_tiled_of<WeightType::BF16>(Stream&,
                                                     const GemmArgs&,
                                                     const GemmChoice&,
                                                     int);
template void launch_gemm_tiled_of<WeightType::Int8>(Stream&,
                                                     const GemmArgs&,
                                                     const GemmChoice&,
                                                     int);
template void launch_gemm_tiled_of<WeightType::Q4>(Stream&,
                                                   const GemmArgs&,
                                                   const GemmChoice&,
                                                   int);
template void launch_gemm_tiled_of<WeightType::Q4Sym>(Stream&,
                                                      const GemmArgs&,
                                                      const GemmChoice&,
                                                      int);

}  // namespace paceline::cuda

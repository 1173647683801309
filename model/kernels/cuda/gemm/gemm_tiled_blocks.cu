// The tiled kernel for block types of 32 numbers.
#include "model/kernels/cuda/gemm/gemm_tiled.cuh"

namespace paceline::cuda {

template void launch_gemm_tiled_of<WeightType::Q5_0>(Stream&,
                                                     const GemmArgs&,
                                                     const GemmChoice&,
                                                     int);
template void launch_gemm_tiled_of<WeightType::Q5_1>(Stream&,
                                                     const GemmArgs&,
                                                     const GemmChoice&,
                                                     int);
template void launch_gemm_tiled_of<WeightType::IQ4NL>(Stream&,
                                                      const GemmArgs&,
                                                      const GemmChoice&,
                                                      int);
template void launch_gemm_tiled_of<WeightType::MXFP4>(Stream&,
                                                      const GemmArgs&,
                                                      const GemmChoice&,
                                                      int);

}  // namespace paceline::cuda

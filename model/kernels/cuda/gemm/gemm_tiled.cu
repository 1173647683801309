// launch_gemm_tiled(). Kernels are instantiated in gemm_tiled_*.cu.
#include "model/kernels/cuda/gemm/gemm_kernels.hpp"

namespace paceline::cuda {

void launch_gemm_tiled(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows) {
    with_type(args.weights.type, [&](auto type) {
        if constexpr (decltype(type)::value == WeightType::F32) {
            throw DeviceError("a product of floats: the tiled kernel does not take it");
        } else {
            launch_gemm_tiled_of<decltype(type)::value>(stream, args, choice, rows);
        }
    });
}

}  // namespace paceline::cuda

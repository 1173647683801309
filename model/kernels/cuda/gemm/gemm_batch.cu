// launch_gemm_batch(). Kernels are instantiated in gemm_batch_*.cu: one source for all took a
// minute to compile.
#include "model/kernels/cuda/gemm/gemm_kernels.hpp"

namespace paceline::cuda {

void launch_gemm_batch(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    with_type(args.weights.type, [&](auto type) {
        launch_gemm_batch_of<decltype(type)::value>(stream, args, choice);
    });
}

}  // namespace paceline::cuda

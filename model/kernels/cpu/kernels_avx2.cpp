// The CPU kernels, compiled for avx2.
#include "model/kernels/cpu/attention.inl.hpp"
#include "model/kernels/cpu/elementwise.inl.hpp"
#include "model/kernels/cpu/gemm.inl.hpp"
#include "model/kernels/cpu/kernel_tables.hpp"
#include "model/kernels/cpu/simd_avx2.hpp"

namespace paceline {

const KernelTable kAvx2Kernels = {
    .isa = Isa::Avx2,
    .gemm = gemm::run<SimdAvx2>,
    .pack_row = elementwise::pack_row<SimdAvx2>,
    .rms_scale = elementwise::rms_scale<SimdAvx2>,
    .scale_by = elementwise::scale_by<SimdAvx2>,
    .silu_mul = elementwise::silu_mul<SimdAvx2>,
    .store_kv = attention::store_kv<SimdAvx2>,
    .attend = attention::attend<SimdAvx2>,
    .merge = attention::merge<SimdAvx2>,
    .finish = attention::finish<SimdAvx2>,
};

}  // namespace paceline

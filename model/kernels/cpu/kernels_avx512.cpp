// The CPU kernels, compiled for avx512.
#include "model/kernels/cpu/attention.inl.hpp"
#include "model/kernels/cpu/elementwise.inl.hpp"
#include "model/kernels/cpu/gemm.inl.hpp"
#include "model/kernels/cpu/kernel_tables.hpp"
#include "model/kernels/cpu/simd_avx512.hpp"

namespace paceline {

const KernelTable kAvx512Kernels = {
    .isa = Isa::Avx512,
    .gemm = gemm::run<SimdAvx512>,
    .pack_row = elementwise::pack_row<SimdAvx512>,
    .rms_scale = elementwise::rms_scale<SimdAvx512>,
    .scale_by = elementwise::scale_by<SimdAvx512>,
    .silu_mul = elementwise::silu_mul<SimdAvx512>,
    .store_kv = attention::store_kv<SimdAvx512>,
    .attend = attention::attend<SimdAvx512>,
    .merge = attention::merge<SimdAvx512>,
    .finish = attention::finish<SimdAvx512>,
};

}  // namespace paceline

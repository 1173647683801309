// The CPU kernels, compiled for any machine.
#include "model/kernels/cpu/attention.inl.hpp"
#include "model/kernels/cpu/elementwise.inl.hpp"
#include "model/kernels/cpu/gemm.inl.hpp"
#include "model/kernels/cpu/kernel_tables.hpp"
#include "model/kernels/cpu/simd_portable.hpp"

namespace paceline {

const KernelTable kPortableKernels = {
    .isa = Isa::Portable,
    .gemm = gemm::run<SimdPortable>,
    .pack_row = elementwise::pack_row<SimdPortable>,
    .rms_scale = elementwise::rms_scale<SimdPortable>,
    .scale_by = elementwise::scale_by<SimdPortable>,
    .silu_mul = elementwise::silu_mul<SimdPortable>,
    .store_kv = attention::store_kv<SimdPortable>,
    .attend = attention::attend<SimdPortable>,
    .merge = attention::merge<SimdPortable>,
    .finish = attention::finish<SimdPortable>,
};

}  // namespace paceline

#include "model/sampling/row_kernels.hpp"

namespace paceline {

namespace row_baseline {
extern const RowKernels kRowKernels;
}
#if defined(PACE_ROW_X86)
namespace row_avx2 {
extern const RowKernels kRowKernels;
}
namespace row_avx512 {
extern const RowKernels kRowKernels;
}
#endif

const RowKernels* row_kernels_for(RowIsa isa) {
    switch (isa) {
        case RowIsa::Baseline:
            return &row_baseline::kRowKernels;
#if defined(PACE_ROW_X86)
        case RowIsa::Avx2:
            return __builtin_cpu_supports("avx2") ? &row_avx2::kRowKernels : nullptr;
        case RowIsa::Avx512:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
                       ? &row_avx512::kRowKernels
                       : nullptr;
#else
        case RowIsa::Avx2:
        case RowIsa::Avx512:
            return nullptr;
#endif
    }
    return nullptr;
}

const RowKernels& row_kernels() {
    static const RowKernels* const best = [] {
        if (const RowKernels* wide = row_kernels_for(RowIsa::Avx512)) return wide;
        if (const RowKernels* half = row_kernels_for(RowIsa::Avx2)) return half;
        return row_kernels_for(RowIsa::Baseline);
    }();
    return *best;
}

}  // namespace paceline

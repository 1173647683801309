#include "model/kernels/cpu/kernel_table.hpp"

#include "ipc/base/check.hpp"
#include "model/kernels/cpu/kernel_tables.hpp"

namespace paceline {

const KernelTable& kernels(Isa isa) {
    PACE_CHECK(supports(isa), "this machine cannot run these kernels");
    switch (isa) {
        case Isa::Portable:
            break;
#if defined(__x86_64__)
        case Isa::Avx2:
            return kAvx2Kernels;
        case Isa::Avx512:
            return kAvx512Kernels;
        case Isa::Amx:
            return amx_kernels();
#else
        case Isa::Avx2:
        case Isa::Avx512:
        case Isa::Amx:
            break;
#endif
    }
    return kPortableKernels;
}

}  // namespace paceline

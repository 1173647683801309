// The tables that kernels() chooses from; each is defined in the file compiled for its Isa.
#pragma once

#include "model/kernels/cpu/kernel_table.hpp"

namespace paceline {

extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
/// Those of AVX-512 but for matrix products and the packing of their inputs.
[[nodiscard]] const KernelTable& amx_kernels();

}  // namespace paceline

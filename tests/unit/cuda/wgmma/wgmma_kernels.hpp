// The same sums by two instructions of an NVIDIA GPU: a chain of mma.sync m16n8k16 and a chain of
// wgmma m64nNk16, bf16 products into float sums, k ascending.
//
// With `slices` above 1 the k are cut into so many equal parts; each has a chain of its own from
// zero, and their sums are added in ascending order, as the product kernels do it (gemm.hpp).
//
// Errors: DeviceError as the device does. wgmma exists on compute capability 9.0 alone: ask
// wgmma_problem() first. C++17.
#pragma once

#include <cstdint>
#include <string>

#include "model/kernels/cuda/runtime.hpp"

namespace paceline::cuda::test {

struct SumsCall {
    const std::uint16_t* a = nullptr;  // bf16 [m][k]
    const std::uint16_t* b = nullptr;  // bf16 [n][k]
    float* c = nullptr;                // [m][n]
    int m = 0;                         // a multiple of 64
    int n = 0;                         // a multiple of 128
    int k = 0;                         // a multiple of 64 x slices
    int slices = 1;
};

/// Why wgmma cannot be tested on this device; empty if it can.
[[nodiscard]] std::string wgmma_problem(const DeviceInfo& device);

void launch_mma_chain(Stream& stream, const SumsCall& call);

/// `width` is N: 8, 64 or 128. A comes from registers or from shared memory.
void launch_wgmma_chain(Stream& stream, const SumsCall& call, int width, bool a_in_registers);

}  // namespace paceline::cuda::test

// launch(): puts a kernel into a stream. Included by .cu files alone.
//
//     launch(stream, {.blocks_x = 12, .threads = 256, .shared_bytes = 8192}, kernel<...>, args);
//
// Throws DeviceError naming the kernel if the device refuses it.
#pragma once

#include <cstddef>

#include "model/kernels/cuda/runtime.hpp"

namespace paceline::cuda {

struct LaunchShape {
    int blocks_x = 1;
    int blocks_y = 1;
    int threads = 32;  // of a block, whole warps
    std::size_t shared_bytes = 0;
    bool overlaps_previous = false;  // may begin before the kernel before it has ended: it calls
                                     // wait_for_previous()
};

}  // namespace paceline::cuda

#ifdef PACELINE_EMULATED_DEVICE
#include "model/kernels/cuda/emulated/launch_emulated.hpp"
#else
#include "model/kernels/cuda/launch_nvcc.cuh"
#endif

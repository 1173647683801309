// launch(): puts a kernel into a stream. Included by .cu files alone.
//
//     launch(stream, {.blocks_x = 12, .threads = 256, .shared_bytes = 8192}, kernel<...>, args);
//
// Throws DeviceError naming the kernel if the device refuses it. A build for another device names
// the header with its launch() in PACELINE_LAUNCH_HEADER.
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

#ifdef PACELINE_LAUNCH_HEADER
#include PACELINE_LAUNCH_HEADER
#else
#include "model/kernels/cuda/launch_nvcc.cuh"
#endif

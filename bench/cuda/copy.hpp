// launch_copy(): copies device memory with a kernel, 16 bytes a load and a store.
//
// The yardstick of benches: the rate at which a kernel reads and writes memory is what other
// kernels can reach, which the runtime's own copy, another program, need not show.
//
// Errors: DeviceError if an address or the size is not a multiple of 16 bytes. C++17.
#pragma once

#include <cstddef>

#include "model/kernels/cuda/runtime.hpp"

namespace paceline::cuda {

/// Copies `bytes` from `from` to `to`, which do not overlap, with a grid that fills `processors`
/// multiprocessors.
void launch_copy(Stream& stream, void* to, const void* from, std::size_t bytes, int processors);

}  // namespace paceline::cuda

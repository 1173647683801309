// Weights made up on the device, for benches of models that nobody has at hand.
//
// Reproducible: a number follows from the seed and its place alone. They are uniform with the
// variance 1 / inputs, so that rows keep their size from layer to layer; padding is 0. C++17.
#pragma once

#include <cstdint>

#include "model/kernels/cuda/gemm.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline::cuda {

/// Fills the memory of `matrix` (any type; of a paired one, both).
void launch_random(Stream& stream, const DeviceMatrix& matrix, std::uint64_t seed);

}  // namespace paceline::cuda

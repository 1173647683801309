// Synthetic weights made on the device, for benches of shapes without a model file.
//
// The numbers are those of model/weights/synthetic/synthetic_numbers.hpp, wherever the layout puts
// them: the same as on the host, and the same in every type. Padding is 0. C++17.
#pragma once

#include <cstdint>
#include <vector>

#include "model/kernels/cuda/gemm/gemm.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline::cuda {

/// A tensor whose rows are outputs of a matrix.
struct RandomPart {
    std::uint64_t seed = 0;  // the tensor's: random_seed()
    int outputs = 0;
    int first = 0;  // of the tensor's rows, which the outputs are
};
inline constexpr int kRandomPartsMax = 3;

/// Fills the memory of `matrix` with parts one after the other, at most kRandomPartsMax; a paired
/// one with two, side by side. Not for block types, whose numbers the host generates.
void launch_random(Stream& stream,
                   const DeviceMatrix& matrix,
                   const std::vector<RandomPart>& parts);

/// The same with one part of the seed `seed`, or with two where the matrix is paired.
void launch_random(Stream& stream, const DeviceMatrix& matrix, std::uint64_t seed);

}  // namespace paceline::cuda

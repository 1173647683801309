// Stretches: the order in which a file's matrices are read and packed, a few megabytes at a time.
//
// A packed stretch of the file leaves the process's memory, so that loading takes little more than
// the packed weights.
//
// Pure function.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/kernels/cpu/packed_matrix.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

/// A matrix and what it is packed from.
struct WeightSource {
    PackedMatrix* matrix;
    const TensorView* tensor;
};

/// Tiles [first_tile, last_tile) of a matrix.
struct Stretch {
    const WeightSource* source;
    int first_tile;
    int last_tile;
    std::span<const std::byte> bytes;  // of the file; empty: a tensor without bytes
};

/// All tiles of `sources`, in their order. A stretch has about `stretch_bytes` of the file, at
/// least `tiles_min` tiles (the last one of a matrix may have fewer), and whole heads of q and k,
/// whose rows are packed in another order than they are stored in.
[[nodiscard]] std::vector<Stretch> stretches_of(std::span<const WeightSource> sources,
                                                std::size_t stretch_bytes,
                                                int tiles_min = 1);

}  // namespace paceline

// SyntheticTile: packs rows that no file has (model/weights/synthetic/synthetic_rows.hpp), tile by
// tile.
//
// The numbers are made in the stored type that the packed one keeps exactly, so that they are those
// of any other backend with the same dtype (float16, which a GPU rounds, aside). Borrows the matrix
// and the list. One thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"
#include "model/kernels/cpu/packed_matrix.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

class SyntheticTile {
public:
    /// `seed` is the tensor's, `list` the rows of it that the matrix holds; empty: all.
    SyntheticTile(const PackedMatrix& matrix, std::uint64_t seed, std::span<const TokenId> list);

    /// `scratch` as pack_tiles() wants it.
    void pack(int tile, std::span<float> scratch);

private:
    const PackedMatrix& matrix_;
    std::uint64_t seed_;
    std::span<const TokenId> list_;
    TensorView rows_;
    std::size_t row_bytes_ = 0;
    std::vector<std::byte> bytes_;
};

}  // namespace paceline

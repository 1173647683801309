// Where the parts of a group of a tile lie: of plain, 4-bit and int8 matrices (packed_matrix.hpp)
// and of block types (packed_blocks.hpp).
//
// Pure function.
#pragma once

#include <cstdint>

#include "model/kernels/cpu/packed_matrix.hpp"

namespace paceline {

/// Of 32 inputs and 16 lanes.
struct TileGroup {
    std::uint16_t*
        head;  // d of the lanes, where the form has a head; then -dmin, if it has a minimum
    std::uint8_t* scales;  // as the form has them
    std::uint8_t* codes;   // or numbers, of F32 and BF16
};

[[nodiscard]] TileGroup tile_group(const PackedMatrix& matrix, int tile, int group);

}  // namespace paceline

// PackedMatrix: a weight matrix laid out so that a row of outputs streams from memory once.
//
// A tile is 16 outputs. Inside a tile the inputs (k) are cut into groups of 32, and groups stand in
// pairs, so that everything starts on a cache line and a tile is read from its first byte to its
// last. A group holds, for each of the 16 outputs side by side (a lane each):
//
//     type   quants of a group                       bytes   scales of a group
//     F32    [32][16] float32                         2048
//     BF16   [16][16][2] bfloat16, two k per lane     1024
//     F16    [32][16] float16                         1024
//     Int8   [8][16][4] uint8 (w + 128), 4 k a lane    512   [16] f16 d
//     Q4     [4][16][4] uint8, 4 k a lane:             256   [16] f16 d, [16] f16 m
//              low nibble k = 8j + b, high k = 8j+4+b
//     Q4Sym  the same, value d * (n - 8)               256   [16] f16 d
//
//     tile:  | quants 0 | quants 1 | scales 0 | scales 1 |   quants 2 | ...
//
//     the others, block types: drawn in packed_blocks.hpp
//
// Int8 holds d * w, Q4 holds d * n + m. Rows and columns that do not fill a tile or a pair are
// zeros (Int8: 128).
//
// Owns nothing: the bytes live in the backend's HugeArena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "model/weights/packed_type.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

inline constexpr int kTileRows = 16;
inline constexpr int kGroup = 32;
inline constexpr int kPair = 2 * kGroup;  // columns are padded to whole pairs

struct PackedMatrix {
    PackedType type = PackedType::F32;
    int rows = 0;  // outputs
    int cols = 0;  // inputs
    std::byte* data = nullptr;
    // Read around the last-level cache: it is part of more weights than that could hold until
    // they are read again, and would only drive out what others keep there (a draft's weights).
    bool past_cache = false;

    [[nodiscard]] int tiles() const { return (rows + kTileRows - 1) / kTileRows; }
    [[nodiscard]] int groups() const { return (cols + kPair - 1) / kPair * 2; }
    [[nodiscard]] std::size_t group_bytes()
        const;  // quants of one group of one tile; of block types 0
    [[nodiscard]] std::size_t scale_bytes()
        const;  // scales of one group of one tile; of block types 0
    [[nodiscard]] std::size_t tile_bytes() const;
    [[nodiscard]] std::size_t bytes() const {
        return static_cast<std::size_t>(tiles()) * tile_bytes();
    }
};

/// Packs tiles [first_tile, last_tile) of `source` into `matrix`, whose type, rows, cols and data
/// are set. Values change only where the stored type is not the packed one: BF16 rounds to nearest
/// even, as does F16 of a merged matrix; Int8 and Q4 quantise each group of 32 anew (scale =
/// max|x|/127; 15 steps from min to max). `scratch` holds one row, cols rounded up to 64. Returns a
/// row that holds a number that is not finite, also as the scale or minimum of a block; nothing:
/// there is none.
[[nodiscard]] std::optional<std::int64_t> pack_tiles(const TensorView& source,
                                                     const PackedMatrix& matrix,
                                                     int first_tile,
                                                     int last_tile,
                                                     std::span<float> scratch);

/// Row `row` of the packed matrix as float32 (an embedding look-up).
void unpack_row(const PackedMatrix& matrix, int row, std::span<float> out);

}  // namespace paceline

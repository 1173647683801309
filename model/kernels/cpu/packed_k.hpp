// Q4_K and Q6_K blocks of a file in tiles, with the integer scales that they have there: what is computed
// are the file's numbers, bit for bit, from memory of 1.03 and 1.01 times the file's.
//
// A tile of 16 outputs is cut into blocks of 256 inputs, a block into pairs of groups of 32:
//
//     block:  | 16 f16 d, 16 f16 -dmin (Q6K: 32 unused bytes) | pair 0 | pair 1 | pair 2 | pair 3 |
//     pair:   | quants 0 | quants 1 | Q6K: tops 0 | tops 1 | scales 0 | scales 1 |
//
//     quants  [4][16][4] uint8, 4 k a lane: low nibble k = 8j + b, high k = 8j + 4 + b (as Q4)
//     tops    [2][16][4] uint8, bits 4 and 5 of the quants: of k = 16h + 4i + b in bits 2i of byte b
//             of lane, line h
//     scales  Q4K: [16] uint8 s, [16] uint8 m;  Q6K: [2][16] int8 s, one per 16 inputs
//
// A weight is d s q - dmin m, or d s (q - 32). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/kernels/cpu/packed_matrix.hpp"

namespace paceline {

inline constexpr int kBlockGroups = 8;            // groups of 32 in a block
inline constexpr std::size_t kBlockHead = 64;     // bytes of d and dmin
inline constexpr std::size_t kNibbleBytes = 256;  // of a group
inline constexpr std::size_t kTopBytes = 128;     // of a group, Q6K
inline constexpr std::size_t kScaleBytes = 32;    // of a group

[[nodiscard]] constexpr std::size_t k_pair_bytes(PackedType type) {
    return 2 * (kNibbleBytes + kScaleBytes + (type == PackedType::Q6K ? kTopBytes : 0));
}
[[nodiscard]] constexpr std::size_t k_block_bytes(PackedType type) {
    return kBlockHead + kBlockGroups / 2 * k_pair_bytes(type);
}

/// Copies the file's block `block` of a row into its lane of a cleared tile; whether its scales are finite.
bool put_k_block(const PackedMatrix& matrix, std::int64_t row, int block, const std::byte* stored);

/// Group `group` of row `row` as float32.
void get_k_group(const PackedMatrix& matrix, int row, int group, std::span<float> out);

}  // namespace paceline

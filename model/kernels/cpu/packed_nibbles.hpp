// Where a nibble stands in a group of a tile: 4-bit quants of 32 inputs for 16 outputs (packed_matrix.hpp).
//
// Pure functions.
#pragma once

#include <cstdint>

namespace paceline {

/// Stores the nibble of input k (of 32) of output `lane`, whose place holds zeros.
inline void put_nibble(std::uint8_t* quants, int lane, int k, int nibble) {
    const int byte = (k / 8) * 64 + lane * 4 + k % 4;
    const int shift = (k % 8) < 4 ? 0 : 4;
    quants[byte] = static_cast<std::uint8_t>(quants[byte] | (nibble << shift));
}

inline int get_nibble(const std::uint8_t* quants, int lane, int k) {
    const int byte = (k / 8) * 64 + lane * 4 + k % 4;
    return (quants[byte] >> ((k % 8) < 4 ? 0 : 4)) & 0x0f;
}

}  // namespace paceline

// Records: quantised weights in the order in which a warp reads them.
//
// A record is 16 outputs x one step of inputs. Lane 4g + t of a warp reads 16 bytes of values, and
// 4 (Int8) or 16 (Q4) bytes of scales for outputs g and g + 8 of the tile:
//
//     Int8   32 inputs   [32 lanes][ 8 x W[g][8t..8t+7]  8 x W[g+8][8t..8t+7] ]           512 B
//                        [8 g][ f16 scale of g, of g+8 ]                                   32 B
//     Q4     64 inputs   [32 lanes][ group 0: 4 B of g, 4 B of g+8; group 1: the same ]   512 B
//                        [8 g][ group 0: scale g, scale g+8, minimum g, g+8; group 1 ]    128 B
//
// A group is 32 inputs with one scale. The 4 bytes of a lane's output hold its inputs 8t .. 8t+7
// of the group: nibble i, the lowest first, is input 8t + nibble_input(i), so that one shift and one
// mask put a pair of neighbours into the two halves of a word. value = scale * q + minimum, q in
// 0 .. 15 (Q4), or scale * q, q in -127 .. 127 (Int8). Inputs and outputs that do not exist are 0.
//
// Pure functions that fill records on the host from numbers of a file. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kernels/cuda/gemm.hpp"

namespace paceline::cuda {

/// One group of 32 inputs of one output.
struct QuantGroup {
    std::int8_t q[32] = {};     // Q4: 0 .. 15
    std::uint16_t scale = 0;    // f16
    std::uint16_t minimum = 0;  // f16, Q4
};

/// Which of a lane's eight inputs nibble `i` of its word is.
[[nodiscard]] constexpr int nibble_input(int i) {
    return i < 4 ? 2 * i : 2 * (i - 4) + 1;
}
/// In which nibble input `i` of a lane's eight is.
[[nodiscard]] constexpr int input_nibble(int i) {
    return i / 2 + i % 2 * 4;
}

/// Puts a group into a matrix of records: output `o` (of the tile order: for a paired matrix,
/// paired_output()), inputs 32 group .. 32 group + 31. `records` is zeroed before the first.
void put_group(
    WeightType type, const QuantGroup& from, int o, int group, int steps, std::byte* records);

/// The place of output `o` of the first (gate) or second (up) matrix of a pair.
[[nodiscard]] constexpr int paired_output(int o, bool second) {
    return o / 8 * kTileOutputs + o % 8 + (second ? 8 : 0);
}

[[nodiscard]] constexpr std::size_t records_bytes(WeightType type, int tiles, int inputs) {
    return static_cast<std::size_t>(tiles) * static_cast<std::size_t>(steps_of(type, inputs)) *
           record_bytes(type);
}

}  // namespace paceline::cuda

// Records: the memory layout of quantised weights, in the order in which a warp reads them.
//
// A record is 16 outputs x one step of 64 inputs (32 of Int8): two groups of 32 inputs (one). Lane
// 4g + t of a warp reads the codes of outputs g and g + 8 of the tile, and the scales of both:
//
//     tile:    | record | record ... | head | head ... |       a record for each step, a head for
//                                                              each 256 inputs
//     record:  | low plane [32 lanes] | top plane [32 lanes] | scales [8 g] |
//     head:    [8 g] f16 d of g, of g + 8; with dmin: then -dmin of g, of g + 8
//
//     codes of a lane                            bytes    code i of its eight of a group and an
//                                                         output
//       low plane   8 bits  [output]                16    byte i
//                   4 bits  [group][output]         16    table: nibble i; else nibble i / 2, for
//                                                         odd i 4 + i / 2
//                   2 bits  [group]                  8    bits 2p of a half word, p = 4 output + i
//                                                         / 2
//       top plane   2 bits  [group]                  8    the same
//                   1 bit                            4    bit p of a half word, p = 8 group + 4
//                                                         output + i / 2
//     half word: the lower half of the word for even i, the upper half for odd i
//     scales of a g
//       Half          [group][output] f16 d          8    (Int8: 4)
//       HalfMinimum   [group] f16 d, d, m, m        16
//       Power, Block  [group][output] u8 e or i8 s   4
//       BlockHalves   [group][half][output] i8 s     8
//       BlockMinimum  [group] u8 s, s, t, t          8
//       BlockMinima   [group][half][output] u8       8
//
// The eight inputs of a lane are 8t .. 8t+7 of the group; in types with a scale per 16 inputs
// (has_halves()), 4t .. 4t+3 of both halves. One shift and one mask extract two neighbouring codes
// into the two halves of a word. Inputs and outputs that do not exist are zeros (codes of Int8:
// 128). What codes and scales mean: model/weights/packed_type.hpp.
//
// Pure functions. C++17.
#pragma once

#include <cstddef>

#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline {
struct StoredCodes;  // model/weights/gguf/gguf_codes.hpp
}

namespace paceline::cuda {

inline constexpr int kHeadInputs = 256;  // inputs that share a head

/// Bytes of a lane in a plane whose codes have `bits` bits.
[[nodiscard]] constexpr int plane_bytes(int bits) {
    return bits == 8 ? 16 : 4 * bits;
}
/// Bytes of the scales of outputs g and g + 8 in a record.
[[nodiscard]] constexpr int scale_bytes(WeightType type) {
    switch (block_format(type).form) {
        case ScaleForm::Half:
            return type == WeightType::Int8 ? 4 : 8;
        case ScaleForm::HalfMinimum:
            return 16;
        case ScaleForm::Power:
        case ScaleForm::Block:
            return 4;
        case ScaleForm::BlockHalves:
        case ScaleForm::BlockMinimum:
        case ScaleForm::BlockMinima:
            break;
    }
    return 8;
}
/// Bytes of outputs g and g + 8 in a head; 0 if the type has no heads.
[[nodiscard]] constexpr int head_bytes(WeightType type) {
    const ScaleForm form = block_format(type).form;
    return !has_head(form) ? 0 : has_minimum(form) ? 8 : 4;
}

/// Byte offsets in a record.
struct RecordParts {
    int top;  // plane
    int scales;
    int end;  // size of the record
};
[[nodiscard]] constexpr RecordParts record_parts(WeightType type) {
    const BlockFormat format = block_format(type);
    const int top = 32 * plane_bytes(format.low_bits);
    const int scales = top + 32 * plane_bytes(format.top_bits);
    return {top, scales, scales + 8 * scale_bytes(type)};
}
[[nodiscard]] constexpr std::size_t record_bytes(WeightType type) {
    return static_cast<std::size_t>(record_parts(type).end);
}

/// The nibble of input `i` of a lane's eight in a type without a table.
[[nodiscard]] constexpr int input_nibble(int i) {
    return i / 2 + i % 2 * 4;
}

/// The place of input k of a group of 32: input i of the eight of lane 4g + t.
struct LaneInput {
    int t;
    int i;
};
[[nodiscard]] constexpr LaneInput lane_input(WeightType type, int k) {
    if (!has_halves(block_format(type).form)) return {k / 8, k % 8};
    return {k % 16 / 4, k / 16 * 4 + k % 4};
}

/// Where the bits of one code are in a plane: a word of the lane, and the lowest bit there.
struct CodePlace {
    int word;
    int bit;
};
/// For group `group` of a step, output g (half = 0) or g + 8, and input i of the lane's eight, in a
/// plane of `bits`.
[[nodiscard]] constexpr CodePlace code_place(
    WeightType type, int bits, int group, int half, int i) {
    const int pair = 4 * half + i / 2;
    if (bits == 8) return {2 * half + i / 4, i % 4 * 8};
    if (bits == 4) {
        const bool table = block_format(type).table != CodeTable::None;
        return {2 * group + half, 4 * (table ? i : input_nibble(i))};
    }
    if (bits == 2) return {group, 2 * pair + 16 * (i % 2)};
    return {0, 8 * group + pair + 16 * (i % 2)};
}

/// Bytes of a tile with its heads.
[[nodiscard]] constexpr std::size_t tile_bytes(WeightType type, int inputs) {
    const auto heads = static_cast<std::size_t>((inputs + kHeadInputs - 1) / kHeadInputs);
    return static_cast<std::size_t>(steps_of(type, inputs)) * record_bytes(type) +
           heads * 8 * static_cast<std::size_t>(head_bytes(type));
}

/// Writes output `o` (0 .. 15), inputs 32 group .. 32 group + 31, into a tile of `inputs` inputs.
/// Each group of an output once, after empty_tile().
void put_group(
    WeightType type, const StoredCodes& from, int o, int group, int inputs, std::byte* tile);

/// Makes all numbers of a tile zeros.
void empty_tile(WeightType type, int inputs, std::byte* tile);

}  // namespace paceline::cuda

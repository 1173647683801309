// Blocks of a file in tiles, with the integers that they have there: what is computed are the
// file's numbers, bit for bit, from memory of 1.00 to 1.04 times the file's (Q3_K with an odd
// number of blocks in a row: at most 1.06). Groups come in pairs: a row of an odd number of
// 32-number blocks takes one more.
//
// put_group() and get_group() also serve Int8 (codes of 8 bits) and Q4, whose groups stand as
// packed_matrix.hpp draws them.
//
// Codes and scales of each type: BlockFormat (model/weights/packed_type.hpp). A tile of 16 outputs
// is cut into spans of head_groups() groups of 32 inputs, a span into units of unit_groups()
// groups; the last span and the last unit may be shorter:
//
//     span:  | head: f16 d and -dmin, of 16 lanes each; without dmin the d of two blocks | unit |
//            unit ...
//     unit:  | of each group scales [16], minima [16]; with a scale per 16 inputs scales [2][16] |
//            codes of each group |
//     codes of a group of 16 lanes, 4 k of a lane in each line of [16][4] uint8; code 4i + b of a
//     lane:
//       low plane   4 bits: line i / 2, low half of byte b where i is even, else the high half
//                   2 bits: line i / 4, bits 2 (i % 4) of byte b
//       top plane   2 bits: line i / 4, bits 2 (i % 4) of byte b;  1 bit: bit i of byte b
//
// Everything starts on a cache line. Pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "model/kernels/cpu/packed_matrix.hpp"
#include "model/weights/gguf/gguf_codes.hpp"

namespace paceline {

inline constexpr int kBlockGroups = 8;  // groups of 32 that share d in a head
inline constexpr int kLine = 64;        // bytes of 4 codes of 16 lanes, or of a head

/// Groups that share a head.
[[nodiscard]] constexpr int head_groups(ScaleForm form) {
    return has_minimum(form) ? kBlockGroups : 2 * kBlockGroups;
}
/// Bytes of a group's scales of 16 lanes.
[[nodiscard]] constexpr int scale_bytes(ScaleForm form) {
    switch (form) {
        case ScaleForm::Power:
        case ScaleForm::Block:
            return kTileRows;
        case ScaleForm::HalfMinimum:
            return 4 * kTileRows;
        case ScaleForm::Half:
        case ScaleForm::BlockHalves:
        case ScaleForm::BlockMinimum:
        case ScaleForm::BlockMinima:
            break;
    }
    return 2 * kTileRows;
}
/// Groups whose scales stand together: a line of them, or two.
[[nodiscard]] constexpr int unit_groups(ScaleForm form) {
    return scale_bytes(form) < kLine / 2 ? 4 : 2;
}
/// Bytes of a group's codes of 16 lanes.
[[nodiscard]] constexpr int code_bytes(const BlockFormat& format) {
    return kLine * (format.low_bits + format.top_bits);
}

/// Bytes from the start of a tile to the parts of a group.
struct GroupOffsets {
    int head;  // of the span; without heads: where one would be
    int scales;
    int codes;
};
// Inlined, so that no kernel's copy is linked elsewhere.
[[nodiscard, gnu::always_inline]] constexpr GroupOffsets group_offsets(const BlockFormat& format,
                                                                       int group) {
    const int head = has_head(format.form) ? kLine : 0;
    const int spans = group / head_groups(format.form);
    const int unit = unit_groups(format.form);
    const int units = group / unit;
    const int scales = scale_bytes(format.form);
    const int codes = code_bytes(format);
    return {spans * (head + head_groups(format.form) * (scales + codes)),
            (spans + 1) * head + units * unit * (scales + codes) + group % unit * scales,
            (spans + 1) * head + (units + 1) * unit * scales + group * codes};
}

[[nodiscard]] constexpr std::size_t block_tile_bytes(PackedType type, int groups) {
    const BlockFormat format = block_format(type);
    const int span = head_groups(format.form);
    const int unit = unit_groups(format.form);
    const int heads = has_head(format.form) ? (groups + span - 1) / span : 0;
    const int units = (groups + unit - 1) / unit;
    return static_cast<std::size_t>(heads) * kLine +
           static_cast<std::size_t>(units) *
               static_cast<std::size_t>(unit * scale_bytes(format.form)) +
           static_cast<std::size_t>(groups) * static_cast<std::size_t>(code_bytes(format));
}

/// What a lane without a row holds: its numbers are zeros.
[[nodiscard]] StoredCodes empty_group(PackedType type);

/// Writes a whole group of a tile, all lanes; what the memory held before does not matter. Int8,
/// 4-bit and block types.
void put_group(const PackedMatrix& matrix,
               int tile,
               int group,
               std::span<const StoredCodes, kTileRows> lanes);

/// Group `group` of row `row` as float32, [32]. Int8, 4-bit and block types.
void get_group(const PackedMatrix& matrix, int row, int group, std::span<float> out);

}  // namespace paceline

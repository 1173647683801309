// The codes and scales of 32 numbers as a file's block has them, before any arithmetic, for
// backends that rearrange blocks without computing their numbers.
//
// Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/weights/packed_type.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

/// How a number is made of these: docs/file-formats.md. Integer scales are one of 32 numbers (then
/// both entries are alike) or one of each 16.
struct StoredCodes {
    std::array<std::uint8_t, 32> codes = {};  // n or q without its offset, or index into the table
    std::array<std::uint8_t, 2> scales = {};  // s, as 8-bit two's complement; e of MXFP4
    std::array<std::uint8_t, 2> minimums = {};  // t
    std::uint16_t d = 0;                        // float16
    std::uint16_t minimum = 0;                  // float16 m or dmin
};

/// Numbers 32 group to 32 group + 31 of each of `blocks`, which are of one type that has blocks.
/// The codes of Q8_0 are its integers + 128.
void stored_codes(StoredType type,
                  std::span<const std::byte* const> blocks,
                  int group,
                  std::span<StoredCodes> out);

/// Whether all numbers of a group are finite. `type` is the quantised type of the group.
[[nodiscard]] bool is_finite_group(PackedType type, const StoredCodes& group);

}  // namespace paceline

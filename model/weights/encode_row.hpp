// encode_row: the opposite of dequantize_row(): a row of floats as a file stores it.
//
//     type    how a number is made
//     F32     as it is
//     BF16    rounded to nearest, ties to even
//     Q8_0    the integers of quantise_int8(): what --dtype int8 makes of the same numbers
//     Q4_1    those of quantise_q4(): what --dtype q4 makes of them
//     Q4_0    those of quantise_q4_0()
//
// So a file of Q8_0 or Q4_1 and the wider file that it was made from give the same packed weights.
// Pure.
#pragma once

#include <cstddef>
#include <span>

#include "model/weights/tensor.hpp"

namespace paceline {

/// Whether encode_row() makes this type.
[[nodiscard]] bool can_encode(StoredType type);

/// Writes `row`, a whole number of blocks, to `out`, which has exactly their bytes. False: a number
/// is not finite, or a scale is too large for a float16; what is written then has no meaning.
[[nodiscard]] bool encode_row(StoredType type,
                              std::span<const float> row,
                              std::span<std::byte> out);

}  // namespace paceline

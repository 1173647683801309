// Groups of 32 numbers of a file's blocks as 8-bit integers and a float16 scale: the blocks that
// --dtype int8 converts without rounding:
//
//     Q8_0, Q5_0, IQ4_NL   always
//     MXFP4                where the block's power of two is a float16
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "model/weights/quantise.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

/// Whether blocks of `type` have this form. Blocks of a tensor with a merged LoRA never have.
[[nodiscard]] bool has_int8_form(StoredType type);

/// Numbers 32 group to 32 group + 31 of row `row` of a tensor whose type has the form. Nothing: the
/// group has a scale that is no float16, and is quantised from its numbers. A scale of the file
/// that is not finite stays so.
[[nodiscard]] std::optional<QuantisedGroup> stored_int8_group(const TensorView& tensor,
                                                              std::int64_t row,
                                                              int group);

}  // namespace paceline

// Groups of 32 numbers as a file's blocks have them: small integers, a scale and a minimum, where the
// file's numbers can be taken over without computing them anew. Every backend packs these groups, so
// that equal dtypes are equal numbers.
//
//     form   types                          group
//     int8   Q8_0, Q5_0, IQ4_NL             scale q: the file's numbers exactly
//            MXFP4                          the same where the block's power of two is a float16
//     q4     Q4_0, Q4_1                     scale n + minimum: exactly
//            Q4_K                           the same, its products d s and dmin m rounded to float16:
//                                           less than 0.05 % of either
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "model/weights/quantise.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

/// Whether blocks of `type` are groups of these forms. Of a tensor with a merged LoRA no block is.
[[nodiscard]] bool has_int8_form(StoredType type);
[[nodiscard]] bool has_q4_form(StoredType type);

/// Numbers 32 group to 32 group + 31 of row `row` of a tensor whose type has the form. Nothing: the group
/// has a scale that is no float16, and is quantised from its numbers. A scale of the file that is not
/// finite stays so.
[[nodiscard]] std::optional<QuantisedGroup> stored_int8_group(const TensorView& tensor,
                                                              std::int64_t row,
                                                              int group);
[[nodiscard]] std::optional<QuantisedGroup> stored_q4_group(const TensorView& tensor,
                                                            std::int64_t row,
                                                            int group);

}  // namespace paceline

// Whether numbers of a weight matrix are finite: one that is not changes or ends every answer.
//
// Asked while a matrix is packed, of numbers that are in a core's cache at that moment. Pure
// functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace paceline {

[[nodiscard]] inline bool is_finite_half(std::uint16_t bits) {
    return (bits & 0x7C00U) != 0x7C00U;
}

[[nodiscard]] inline bool is_finite_bfloat(std::uint16_t bits) {
    return (bits & 0x7F80U) != 0x7F80U;
}

[[nodiscard]] inline bool all_finite(std::span<const float> values) {
    unsigned wrong = 0;  // no early end, so that the loop is vectorised
    for (const float value : values) wrong |= std::isfinite(value) ? 0U : 1U;
    return wrong == 0;
}

}  // namespace paceline

// Groups of 32 numbers as small integers: used by every backend for weights that a file stores
// in a wider type, so that the same --dtype means the same numbers on each of them.
//
// Pure.
#pragma once

#include <cstdint>

namespace paceline {

inline constexpr int kQuantGroup = 32;

/// value = scale * q (+ minimum). Scales are float16, as blocks of a file have them.
struct QuantisedGroup {
    std::int8_t q[kQuantGroup] = {};
    std::uint16_t scale = 0;
    std::uint16_t minimum = 0;
};

/// Steps of max|x| / 127, q in -127 .. 127. `count` numbers, at most 32; the others stay 0. What is
/// not finite counts as 0.
[[nodiscard]] QuantisedGroup quantise_int8(const float* x, int count = kQuantGroup);
/// 15 steps from the least to the greatest, q in 0 .. 15. `count` is at least 1.
[[nodiscard]] QuantisedGroup quantise_q4(const float* x, int count = kQuantGroup);
/// Q4_0 of files, 32 numbers: value = scale * (q - 8), q in 0 .. 15. The number of the largest
/// magnitude is -8 scales, so the scale has the other sign.
[[nodiscard]] QuantisedGroup quantise_q4_0(const float* x);

}  // namespace paceline

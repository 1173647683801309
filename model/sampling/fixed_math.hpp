// Logarithm and exponential whose bits are the same on every machine.
//
// libm differs from version to version and picks its code by CPU; these use only IEEE additions,
// multiplications, divisions and integer operations in a fixed order (the build forbids FMA
// contraction). They define the values; the row kernels hold vectorised versions of equal bits.
#pragma once

#include <bit>
#include <cstdint>

#include "model/sampling/noise_layout.hpp"

namespace paceline {

/// log(2^exponent * (1 + f)) for 1 + f in [sqrt 1/2, sqrt 2).
[[nodiscard]] inline float fixed_log_parts(float f, std::int32_t exponent) {
    const float s = f / (2.0f + f);
    const float s2 = s * s;
    const float tail = noise::kLog7 + s2 * noise::kLog9;
    const float series = s2 * (noise::kLog3 + s2 * (noise::kLog5 + s2 * tail));
    return static_cast<float>(exponent) * noise::kLn2 + s * (2.0f + series);
}

/// Natural logarithm of a positive normal number; absolute error below 3e-6 for |result| < 26.
[[nodiscard]] inline float fixed_log(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::int32_t exponent = std::bit_cast<std::int32_t>(bits - noise::kSqrtHalfBits) >> 23;
    const float mantissa =
        std::bit_cast<float>(bits - (static_cast<std::uint32_t>(exponent) << 23));
    return fixed_log_parts(mantissa - 1.0f, exponent);
}

/// -log(u) for the uniform u = (k + 1/2) / 2^31, k being the word's upper 31 bits: a draw of the
/// exponential distribution, in [2^-32, 22.19], with full relative precision near 0.
[[nodiscard]] inline float exponential_of(std::uint32_t word) {
    const auto k = static_cast<std::int32_t>(word >> 1);
    if (k >= noise::kNearOne) {
        const auto complement = static_cast<float>(0x7FFFFFFF - k);  // 1 - u without cancellation
        return -fixed_log_parts(-((complement + 0.5f) * noise::kTwoToMinus31), 0);
    }
    return -fixed_log((static_cast<float>(k) + 0.5f) * noise::kTwoToMinus31);
}

/// exp(z) for z <= 0 in units of 2^-30, cut off; 0 for NaN. Integers, so that a sum of weights
/// does not depend on its order.
[[nodiscard]] inline std::uint32_t weight_of(float z) {
    if (!(z > noise::kWeightZero)) return 0;
    const float n = (z * noise::kLog2E + noise::kRounder) - noise::kRounder;
    const float r = (z - n * noise::kLn2High) - n * noise::kLn2Low;
    const float high = noise::kExp4 + r * (noise::kExp5 + r * noise::kExp6);
    const float value = 1.0f + r * (1.0f + r * (0.5f + r * (noise::kExp3 + r * high)));
    const std::int32_t exponent = static_cast<std::int32_t>(n) + (127 + noise::kWeightBits);
    const auto scale = std::bit_cast<float>(static_cast<std::uint32_t>(exponent) << 23);
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(value * scale));
}

/// exp(z) for z <= 0, relative error below 5e-6; 0 from -86 down, and for NaN.
[[nodiscard]] inline float fixed_exp(float z) {
    if (!(z > noise::kExpZero)) return 0.0f;
    const float shifted = z * noise::kLog2E + noise::kRounder;  // its low bits are the exponent
    const float n = shifted - noise::kRounder;
    const float r = (z - n * noise::kLn2High) - n * noise::kLn2Low;
    const float high = noise::kExp3 + r * (noise::kExp4 + r * noise::kExp5);
    const float value = 1.0f + r * (1.0f + r * (0.5f + r * high));
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) +
                                (std::bit_cast<std::uint32_t>(shifted) << 23));
}

}  // namespace paceline

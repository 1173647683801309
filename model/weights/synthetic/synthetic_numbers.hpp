// Synthetic weights: the number in row r and column c of a tensor is a function of the
// tensor's seed, r and c alone, so that every device and layout gives the same numbers. Block types
// are generated differently, on the host (synthetic_blocks.hpp).
//
// 16 bits make a number, uniform with mean 0 and the variance 1 / columns, so that rows keep their
// size from layer to layer. Four columns share one draw. A type sets only the resolution of the
// number:
//
//     plain types   scale * (bits - 32767.5) / 32768           scale = sqrt(3 / columns)
//     Q8_0          d * q, q the upper of 255 steps, -127 .. 127
//     Q4_1          d * n + m, n the upper four bits, m = -7.5 d
//     Q4_0          d * (n - 8)                                d, m: float16
//     other blocks  synthetic_blocks.hpp
//
// Pure; devices compile it too. C++17.
#pragma once

#include <cstdint>

namespace paceline {

inline constexpr int kRandomColumns = 4;  // of one draw

/// The draw for the four columns around `column` of a row: the finaliser of splitmix64.
[[nodiscard]] constexpr std::uint64_t random_draw(std::uint64_t seed,
                                                  std::uint64_t row,
                                                  int columns,
                                                  int column) {
    const auto draws_a_row =
        static_cast<std::uint64_t>((columns + kRandomColumns - 1) / kRandomColumns);
    const std::uint64_t at =
        row * draws_a_row + static_cast<std::uint64_t>(column / kRandomColumns);
    std::uint64_t x = seed + (at + 1) * 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
}

/// The 16 bits of `column`.
[[nodiscard]] constexpr std::uint32_t random_bits(std::uint64_t draw, int column) {
    return static_cast<std::uint32_t>(draw >> (16 * (column % kRandomColumns))) & 0xFFFFU;
}

/// In (-1, 1), exact.
[[nodiscard]] constexpr float random_unit(std::uint32_t bits) {
    return (static_cast<float>(bits) - 32767.5f) * (1.0f / 32768.0f);
}

/// -127 .. 127
[[nodiscard]] constexpr int random_int8(std::uint32_t bits) {
    return static_cast<int>(bits * 255U >> 16U) - 127;
}

/// 0 .. 15
[[nodiscard]] constexpr int random_int4(std::uint32_t bits) {
    return static_cast<int>(bits >> 12U);
}

/// Of the standard deviation 1 / sqrt(columns), what a unit, or a step of a group, is.
inline constexpr float kRandomUnit = 1.7320508f;         // uniform in (-1, 1)
inline constexpr float kRandomInt8 = 1.0f / 73.611593f;  // uniform in -127 .. 127
inline constexpr float kRandomInt4 = 1.0f / 4.6097722f;  // uniform in 0 .. 15
inline constexpr float kRandomInt4Mean = 7.5f;

}  // namespace paceline

// Checks the results of a ladder: every way to spread a product must leave the same bits, and no
// NaN.
//
// Pure functions. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace paceline::bench {

/// What a product left behind when it was spread in one way.
struct Rung {
    std::string product;
    int rows = 0;
    std::string choice;
    std::uint64_t checksum = 0;  // of all bytes that it wrote
    std::size_t nans = 0;        // among the numbers that it wrote
};

/// FNV-1a over `bytes`, continued from `sum`.
[[nodiscard]] std::uint64_t mixed(std::uint64_t sum, std::span<const std::byte> bytes);
inline constexpr std::uint64_t kChecksumBegin = 0xCBF29CE484222325U;

/// How many floats, or bf16 numbers, are NaN.
[[nodiscard]] std::size_t count_nan_floats(std::span<const std::byte> bytes);
[[nodiscard]] std::size_t count_nan_bf16(std::span<const std::byte> bytes);

/// Whether a rung has the bits of the first rung of its product and rows.
[[nodiscard]] bool equals_first(std::span<const Rung> rungs, std::size_t at);

/// One line for each rung that has other bits than the first of its product and rows, and one for
/// each that left a NaN, with product, rows and choice. Empty if all are right.
[[nodiscard]] std::vector<std::string> faults_of(std::span<const Rung> rungs);

}  // namespace paceline::bench

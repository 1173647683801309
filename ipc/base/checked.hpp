// Arithmetic with overflow checks, for sizes that come from files or peers.
#pragma once

#include <concepts>
#include <optional>

namespace paceline {

template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
    T sum{};
    if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
    return sum;
}

template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) {
    T product{};
    if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
    return product;
}

/// `value` rounded up to a multiple of `alignment` (a power of two); nothing on overflow.
template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_align_up(T value, T alignment) {
    const std::optional<T> padded = checked_add<T>(value, static_cast<T>(alignment - 1));
    if (!padded) return std::nullopt;
    return static_cast<T>(*padded & ~static_cast<T>(alignment - 1));
}

}  // namespace paceline

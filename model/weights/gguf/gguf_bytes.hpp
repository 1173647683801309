// Little-endian numbers at any address of a GGUF file: tensors are only as aligned as the file
// says.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model/weights/tensor.hpp"

namespace paceline {

static_assert(std::endian::native == std::endian::little, "GGUF data are read in place");

template <class T>
[[nodiscard]] T load_number(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

[[nodiscard]] inline float load_half(const std::byte* at) {
    return half_to_float(load_number<std::uint16_t>(at));
}

[[nodiscard]] inline int byte_at(const std::byte* at) {
    return std::to_integer<int>(*at);
}

}  // namespace paceline

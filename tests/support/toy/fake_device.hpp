// Host memory under addresses that fault when they are followed: a device's, for FakeBackend.
#pragma once

#include <cstdint>
#include <span>

#include "model/placed_span.hpp"

namespace paceline::testing {

// Neither half of the address space reaches this far.
inline constexpr std::uintptr_t kFakeDevice = std::uintptr_t{1} << 62U;

template <class T>
[[nodiscard]] PlacedSpan<T> fake_device_address(std::span<T> memory) {
    auto* at = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(memory.data()) + kFakeDevice);
    return {at, memory.size(), MemoryPlace::Device};
}

template <class T>
[[nodiscard]] std::span<T> fake_host_address(PlacedSpan<T> memory) {
    auto* at = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(memory.data()) - kFakeDevice);
    return {at, memory.size()};
}

}  // namespace paceline::testing

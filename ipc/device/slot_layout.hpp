// Slots one after another in device memory.
//
// Constants and arithmetic; the aligned size serves every load of a kernel. Slots and sizes are
// those of an edge's pool, which bounds both (transport/tensor_pool.hpp), so nothing overflows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline {

inline constexpr std::size_t kSlotAlignment = 256;  // as cudaMalloc gives
/// How much more than its slots an offered block may have: one step of the driver's granularity,
/// with room for devices whose steps are larger.
inline constexpr std::size_t kOfferSlackMax = std::size_t{64} << 20U;

[[nodiscard]] constexpr std::size_t slot_stride(std::size_t slot_bytes) {
    return (slot_bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}
[[nodiscard]] constexpr std::size_t slots_bytes(std::uint32_t slots, std::size_t slot_bytes) {
    return slots * slot_stride(slot_bytes);
}

}  // namespace paceline

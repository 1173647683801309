// The arithmetic of the emulated device: 16-bit floats and the tensor-core product.
//
// Conversions have the bits of the device's own, rounding to nearest even; every NaN becomes 0x7FFF
// when it is narrowed. A product of tiles sums over k in ascending order with one fma for each k,
// starting from c: a definite order, while hardware adds several products at once and cuts the
// bits that fall below the largest. Compare with a GPU's sums to a tolerance.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline::cuda::emulated {

[[nodiscard]] inline float bf16_to_float(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}
[[nodiscard]] float half_to_float(std::uint16_t bits);
[[nodiscard]] std::uint16_t float_to_bf16(float value);
[[nodiscard]] std::uint16_t float_to_half(float value);

/// What a lane gives to mma_bf16(): its registers of the three tiles, laid out as device.cuh says.
struct TilePart {
    float (&c)[4];
    const std::uint32_t (&a)[4];
    const std::uint32_t (&b)[2];
};

/// `parts` are the 32 lanes' TileParts; adds A B to every c.
void multiply_tiles(void* const* parts);

}  // namespace paceline::cuda::emulated

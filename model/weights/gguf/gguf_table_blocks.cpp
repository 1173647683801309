// IQ4_NL, IQ4_XS, MXFP4: 4-bit indices into a table of integers. Byte j of 16 holds number j in its low
// half and number j + 16 in its high half.
#include <bit>

#include "model/weights/gguf/gguf_blocks.hpp"
#include "model/weights/gguf/gguf_bytes.hpp"

namespace paceline {
namespace {

constexpr std::size_t kGroup = 32;
constexpr std::size_t kHalf = kGroup / 2;

void look_up(const std::byte* quants,
             const std::array<std::int8_t, 16>& table,
             float scale,
             float* out) {
    for (std::size_t i = 0; i < kHalf; ++i) {
        const auto pair = static_cast<std::size_t>(byte_at(quants + i));
        out[i] = scale * static_cast<float>(table[pair & 15U]);
        out[i + kHalf] = scale * static_cast<float>(table[pair >> 4U]);
    }
}

/// 2^(e - 128); the two smallest are subnormal.
float half_of_power(std::uint32_t e) {
    return std::bit_cast<float>(e < 2 ? 0x00200000U << e : (e - 1) << 23U);
}

}  // namespace

void dequantize_iq4_nl(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kGroup, block += 18)
        look_up(block + 2, kIq4Table, load_half(block), out.data() + first);
}

void dequantize_iq4_xs(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += 256, block += 136) {
        const float d = load_half(block);
        const auto high = static_cast<int>(load_number<std::uint16_t>(block + 2));
        for (int j = 0; j < 8; ++j) {
            const int low = byte_at(block + 4 + j / 2) >> (4 * (j % 2)) & 15;
            const int scale = low + 16 * (high >> (2 * j) & 3) - 32;
            const auto group = static_cast<std::size_t>(j);
            look_up(block + 8 + kHalf * group, kIq4Table, d * static_cast<float>(scale),
                    out.data() + first + kGroup * group);
        }
    }
}

void dequantize_mxfp4(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kGroup, block += 17)
        look_up(block + 1, kMxfp4Table, half_of_power(load_number<std::uint8_t>(block)),
                out.data() + first);
}

}  // namespace paceline

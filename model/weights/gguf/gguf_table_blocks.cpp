// IQ4_NL, IQ4_XS, MXFP4: 4-bit indices into a table of integers. Byte j of 16 holds number j in its
// low half and number j + 16 in its high half.
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

}  // namespace

int iq4_xs_scale(const std::byte* block, int group) {
    const auto high = static_cast<int>(load_number<std::uint16_t>(block + 2));
    const int low = byte_at(block + 4 + group / 2) >> (4 * (group % 2)) & 15;
    return low + 16 * (high >> (2 * group) & 3) - 32;
}

float mxfp4_scale(std::uint8_t e) {
    const std::uint32_t power = e;
    return std::bit_cast<float>(power < 2 ? 0x00200000U << power : (power - 1) << 23U);
}

void dequantize_iq4_nl(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kGroup, block += 18)
        look_up(block + 2, kIq4Table, load_half(block), out.data() + first);
}

void dequantize_iq4_xs(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += 256, block += 136) {
        const float d = load_half(block);
        for (int j = 0; j < 8; ++j) {
            const int scale = iq4_xs_scale(block, j);
            const auto group = static_cast<std::size_t>(j);
            look_up(block + 8 + kHalf * group, kIq4Table, d * static_cast<float>(scale),
                    out.data() + first + kGroup * group);
        }
    }
}

void dequantize_mxfp4(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kGroup, block += 17)
        look_up(block + 1, kMxfp4Table, mxfp4_scale(load_number<std::uint8_t>(block)),
                out.data() + first);
}

}  // namespace paceline

// Q2_K to Q6_K: blocks of 256 numbers in groups of 16 or 32. A group's scale is the block's float16
// d times a small integer of the group, its minimum (where there is one) dmin times another.
//
// In the names below: a number i stands in half i / 128 of the block, in part i % 128 / 32 of that
// half, at place i % 32 of that part. Parts share their bytes: part p lies in bits 2p (or 4 (p /
// 2)).
#include "model/weights/gguf/gguf_blocks.hpp"
#include "model/weights/gguf/gguf_bytes.hpp"

namespace paceline {
namespace {

constexpr std::size_t kBlock = 256;

struct Place {
    std::size_t half;
    std::size_t part;
    std::size_t at;
    explicit Place(std::size_t i) : half{i / 128}, part{i % 128 / 32}, at{i % 32} {}
};

int bits(const std::byte* byte, std::size_t shift, int mask) {
    return (byte_at(byte) >> shift) & mask;
}

int q4_quant(const std::byte* quants, std::size_t i) {
    return bits(quants + 32 * (i / 64) + i % 32, 4 * (i / 32 % 2), 15);
}

/// d s q - dmin m of a Q4_K or Q5_K block, whose header both share; quant(i) is q of number i.
template <class Quant>
void six_bit_groups(const std::byte* block, float* out, Quant quant) {
    const float d = load_half(block);
    const float dmin = load_half(block + 2);
    for (int group = 0; group < 8; ++group) {
        const SixBitScale of = six_bit_scale(block + 4, group);
        const float scale = d * static_cast<float>(of.scale);
        const float minimum = dmin * static_cast<float>(of.minimum);
        const auto first = static_cast<std::size_t>(group) * 32;
        for (std::size_t i = first; i < first + 32; ++i)
            out[i] = scale * static_cast<float>(quant(i)) - minimum;
    }
}

}  // namespace

SixBitScale six_bit_scale(const std::byte* packed, int group) {
    const std::byte* at = packed + group % 4;
    if (group < 4) return {bits(at, 0, 63), bits(at + 4, 0, 63)};
    return {bits(at + 8, 0, 15) + 16 * bits(at, 6, 3),
            bits(at + 8, 4, 15) + 16 * bits(at + 4, 6, 3)};
}

int q3_scale(const std::byte* packed, int group) {
    const auto g = static_cast<std::size_t>(group);
    const int low = bits(packed + g % 8, 4 * (g / 8), 15);
    return low + 16 * bits(packed + 8 + g % 4, 2 * (g / 4), 3) - 32;
}

void dequantize_q2_k(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 84) {
        const std::byte* quants = block + 16;
        const float d = load_half(block + 80);
        const float dmin = load_half(block + 82);
        for (std::size_t i = 0; i < kBlock; ++i) {
            const Place place(i);
            const int q = bits(quants + 32 * place.half + place.at, 2 * place.part, 3);
            const float scale = d * static_cast<float>(bits(block + i / 16, 0, 15));
            const float minimum = dmin * static_cast<float>(bits(block + i / 16, 4, 15));
            out[first + i] = scale * static_cast<float>(q) - minimum;
        }
    }
}

void dequantize_q3_k(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 110) {
        const std::byte* quants = block + 32;
        const std::byte* scales = block + 96;
        const float d = load_half(block + 108);
        for (std::size_t i = 0; i < kBlock; ++i) {
            const Place place(i);
            const int low = bits(quants + 32 * place.half + place.at, 2 * place.part, 3);
            const int q = low + 4 * bits(block + place.at, i / 32, 1) - 4;
            const int scale = q3_scale(scales, static_cast<int>(i / 16));
            out[first + i] = d * static_cast<float>(scale) * static_cast<float>(q);
        }
    }
}

void dequantize_q4_k(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 144) {
        six_bit_groups(block, out.data() + first,
                       [&](std::size_t i) { return q4_quant(block + 16, i); });
    }
}

void dequantize_q5_k(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 176) {
        six_bit_groups(block, out.data() + first, [&](std::size_t i) {
            return q4_quant(block + 48, i) + 16 * bits(block + 16 + i % 32, i / 32, 1);
        });
    }
}

void dequantize_q6_k(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 210) {
        const std::byte* high = block + 128;
        const std::byte* scales = block + 192;
        const float d = load_half(block + 208);
        for (std::size_t i = 0; i < kBlock; ++i) {
            const Place place(i);
            const std::byte* low = block + 64 * place.half + 32 * (place.part % 2) + place.at;
            const int q = bits(low, 4 * (place.part / 2), 15) +
                          16 * bits(high + 32 * place.half + place.at, 2 * place.part, 3) - 32;
            const auto scale = static_cast<float>(load_number<std::int8_t>(scales + i / 16));
            out[first + i] = d * scale * static_cast<float>(q);
        }
    }
}

}  // namespace paceline

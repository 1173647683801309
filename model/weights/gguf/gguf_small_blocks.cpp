// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 numbers d q or d q + m. Byte j of the 4-bit quants
// holds number j in its low half and number j + 16 in its high half.
#include "model/weights/gguf/gguf_blocks.hpp"
#include "model/weights/gguf/gguf_bytes.hpp"

namespace paceline {
namespace {

constexpr std::size_t kBlock = 32;
constexpr std::size_t kHalf = kBlock / 2;

int nibble(const std::byte* quants, std::size_t i) {
    return (byte_at(quants + i % kHalf) >> (i < kHalf ? 0 : 4)) & 15;
}

/// The 5 bits of number i: bit i of `high` is the uppermost.
int five_bits(const std::byte* quants, std::uint32_t high, std::size_t i) {
    return nibble(quants, i) + static_cast<int>((high >> i & 1U) << 4U);
}

}  // namespace

void dequantize_q4_0(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 18) {
        const float d = load_half(block);
        for (std::size_t i = 0; i < kBlock; ++i)
            out[first + i] = d * static_cast<float>(nibble(block + 2, i) - 8);
    }
}

void dequantize_q4_1(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 20) {
        const float d = load_half(block);
        const float m = load_half(block + 2);
        for (std::size_t i = 0; i < kBlock; ++i)
            out[first + i] = d * static_cast<float>(nibble(block + 4, i)) + m;
    }
}

void dequantize_q5_0(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 22) {
        const float d = load_half(block);
        const auto high = load_number<std::uint32_t>(block + 2);
        for (std::size_t i = 0; i < kBlock; ++i)
            out[first + i] = d * static_cast<float>(five_bits(block + 6, high, i) - 16);
    }
}

void dequantize_q5_1(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 24) {
        const float d = load_half(block);
        const float m = load_half(block + 2);
        const auto high = load_number<std::uint32_t>(block + 4);
        for (std::size_t i = 0; i < kBlock; ++i)
            out[first + i] = d * static_cast<float>(five_bits(block + 8, high, i)) + m;
    }
}

void dequantize_q8_0(const std::byte* block, std::span<float> out) {
    for (std::size_t first = 0; first < out.size(); first += kBlock, block += 34) {
        const float d = load_half(block);
        for (std::size_t i = 0; i < kBlock; ++i)
            out[first + i] = d * static_cast<float>(load_number<std::int8_t>(block + 2 + i));
    }
}

}  // namespace paceline

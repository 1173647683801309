// The block types of GGUF: how a block's bytes become float32.
//
// Each function reads whole blocks from `block` on and writes as many numbers as `out` has, a
// multiple of the block's. Products of a block's scale with its integers are exact in float32; a
// number is rounded at most once, where a minimum is added. These loops are the reference: what a
// backend packs is compared with them, and they with the numbers of the gguf package
// (tests/fixtures/blocks). The layouts are drawn in docs/file-formats.md. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/weights/packed_type.hpp"

namespace paceline {

// gguf_small_blocks.cpp: 32 numbers, one scale, perhaps a minimum.
void dequantize_q4_0(const std::byte* block, std::span<float> out);
void dequantize_q4_1(const std::byte* block, std::span<float> out);
void dequantize_q5_0(const std::byte* block, std::span<float> out);
void dequantize_q5_1(const std::byte* block, std::span<float> out);
void dequantize_q8_0(const std::byte* block, std::span<float> out);

// gguf_k_blocks.cpp: 256 numbers, integer scales per 16 or 32 of them, one float scale for these.
void dequantize_q2_k(const std::byte* block, std::span<float> out);
void dequantize_q3_k(const std::byte* block, std::span<float> out);
void dequantize_q4_k(const std::byte* block, std::span<float> out);
void dequantize_q5_k(const std::byte* block, std::span<float> out);
void dequantize_q6_k(const std::byte* block, std::span<float> out);

/// The integer scale and minimum (6 bits each) of group `group` of a Q4_K or Q5_K block, whose 12
/// bytes of them begin at `packed`.
struct SixBitScale {
    int scale;
    int minimum;
};
[[nodiscard]] SixBitScale six_bit_scale(const std::byte* packed, int group);
/// The scale, -32 to 31, of group `group` of 16 numbers of a Q3_K block, whose 12 bytes of them
/// begin at `packed`.
[[nodiscard]] int q3_scale(const std::byte* packed, int group);

// gguf_table_blocks.cpp: 4-bit indices into a table of 16 integers.
void dequantize_iq4_nl(const std::byte* block, std::span<float> out);
void dequantize_iq4_xs(const std::byte* block, std::span<float> out);
void dequantize_mxfp4(const std::byte* block, std::span<float> out);

/// The scale, -32 to 31, of group `group` of 32 numbers of an IQ4_XS block.
[[nodiscard]] int iq4_xs_scale(const std::byte* block, int group);
/// 2^(e - 128), the scale of an MXFP4 block; the two smallest are subnormal.
[[nodiscard]] float mxfp4_scale(std::uint8_t e);

}  // namespace paceline

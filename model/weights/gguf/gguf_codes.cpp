#include "model/weights/gguf/gguf_codes.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/gguf/gguf_blocks.hpp"
#include "model/weights/gguf/gguf_bytes.hpp"

namespace paceline {
namespace {

constexpr std::size_t kGroup = 32;
constexpr std::size_t kHalf = kGroup / 2;

std::uint8_t small(int value) {
    return static_cast<std::uint8_t>(value);
}

/// 16 bytes whose low halves are the first 16 codes.
void put_nibbles(const std::byte* quants, StoredCodes& to) {
    for (std::size_t i = 0; i < kHalf; ++i) {
        to.codes[i] = small(byte_at(quants + i) & 15);
        to.codes[i + kHalf] = small(byte_at(quants + i) >> 4);
    }
}

/// 32 bytes with a field of each code.
void put_fields(const std::byte* from, int shift, int mask, StoredCodes& to) {
    for (std::size_t i = 0; i < kGroup; ++i) to.codes[i] = small(byte_at(from + i) >> shift & mask);
}

/// The same above `below` bits that are there.
void add_fields(const std::byte* from, int shift, int mask, int below, StoredCodes& to) {
    for (std::size_t i = 0; i < kGroup; ++i)
        to.codes[i] = small(to.codes[i] | (byte_at(from + i) >> shift & mask) << below);
}

void add_fifth_bits(std::uint32_t high, StoredCodes& to) {
    for (std::size_t i = 0; i < kGroup; ++i)
        to.codes[i] = small(to.codes[i] | static_cast<int>((high >> i & 1U) << 4U));
}

StoredCodes q8_0_block(const std::byte* block) {
    StoredCodes to;
    to.d = load_number<std::uint16_t>(block);
    std::memcpy(to.codes.data(), block + 2, kGroup);
    for (std::uint8_t& code : to.codes) code ^= 0x80U;
    return to;
}

StoredCodes q4_block(StoredType type, const std::byte* block) {
    StoredCodes to;
    to.d = load_number<std::uint16_t>(block);
    const bool has_minimum = type == StoredType::Q4_1;
    if (has_minimum) to.minimum = load_number<std::uint16_t>(block + 2);
    put_nibbles(block + (has_minimum ? 4 : 2), to);
    return to;
}

StoredCodes small_block(StoredType type, const std::byte* block) {
    StoredCodes to;
    if (type == StoredType::MXFP4) {
        to.scales.fill(load_number<std::uint8_t>(block));
        put_nibbles(block + 1, to);
        return to;
    }
    to.d = load_number<std::uint16_t>(block);
    if (type == StoredType::IQ4_NL) {
        put_nibbles(block + 2, to);
        return to;
    }
    const int header = type == StoredType::Q5_1 ? 4 : 2;
    if (type == StoredType::Q5_1) to.minimum = load_number<std::uint16_t>(block + 2);
    put_nibbles(block + header + 4, to);
    add_fifth_bits(load_number<std::uint32_t>(block + header), to);
    return to;
}

StoredCodes q2_k_group(const std::byte* block, int group) {
    StoredCodes to;
    for (std::size_t h = 0; h < 2; ++h) {
        const int both = byte_at(block + 2 * group + h);
        to.scales[h] = small(both & 15);
        to.minimums[h] = small(both >> 4);
    }
    put_fields(block + 16 + 32 * (group / 4), 2 * (group % 4), 3, to);
    to.d = load_number<std::uint16_t>(block + 80);
    to.minimum = load_number<std::uint16_t>(block + 82);
    return to;
}

StoredCodes q3_k_group(const std::byte* block, int group) {
    StoredCodes to;
    for (int h = 0; h < 2; ++h)
        to.scales[static_cast<std::size_t>(h)] = small(q3_scale(block + 96, 2 * group + h));
    put_fields(block + 32 + 32 * (group / 4), 2 * (group % 4), 3, to);
    add_fields(block, group, 1, 2, to);
    to.d = load_number<std::uint16_t>(block + 108);
    return to;
}

/// Q4_K and Q5_K.
StoredCodes six_bit_group(StoredType type, const std::byte* block, int group) {
    StoredCodes to;
    const SixBitScale of = six_bit_scale(block + 4, group);
    to.scales.fill(small(of.scale));
    to.minimums.fill(small(of.minimum));
    const bool five = type == StoredType::Q5_K;
    put_fields(block + (five ? 48 : 16) + 32 * (group / 2), 4 * (group % 2), 15, to);
    if (five) add_fields(block + 16, group, 1, 4, to);
    to.d = load_number<std::uint16_t>(block);
    to.minimum = load_number<std::uint16_t>(block + 2);
    return to;
}

StoredCodes q6_k_group(const std::byte* block, int group) {
    StoredCodes to;
    for (std::size_t h = 0; h < 2; ++h)
        to.scales[h] = load_number<std::uint8_t>(block + 192 + 2 * group + h);
    const int half = group / 4;
    const int part = group % 4;
    put_fields(block + 64 * half + 32 * (part % 2), 4 * (part / 2), 15, to);
    add_fields(block + 128 + 32 * half, 2 * part, 3, 4, to);
    to.d = load_number<std::uint16_t>(block + 208);
    return to;
}

StoredCodes iq4_xs_group(const std::byte* block, int group) {
    StoredCodes to;
    to.scales.fill(small(iq4_xs_scale(block, group)));
    put_nibbles(block + 8 + 16 * group, to);
    to.d = load_number<std::uint16_t>(block);
    return to;
}

/// `codes_of` of each block.
template <class CodesOf>
void for_blocks(std::span<const std::byte* const> blocks,
                std::span<StoredCodes> out,
                CodesOf codes_of) {
    for (std::size_t i = 0; i < blocks.size(); ++i) out[i] = codes_of(blocks[i]);
}

}  // namespace

void stored_codes(StoredType type,
                  std::span<const std::byte* const> blocks,
                  int group,
                  std::span<StoredCodes> out) {
    PACE_CHECK(out.size() >= blocks.size(), "a place for each block");
    switch (type) {
        case StoredType::Q5_0:
        case StoredType::Q5_1:
        case StoredType::IQ4_NL:
        case StoredType::MXFP4:
            return for_blocks(blocks, out, [&](auto* block) { return small_block(type, block); });
        case StoredType::Q2_K:
            return for_blocks(blocks, out, [&](auto* block) { return q2_k_group(block, group); });
        case StoredType::Q3_K:
            return for_blocks(blocks, out, [&](auto* block) { return q3_k_group(block, group); });
        case StoredType::Q4_K:
        case StoredType::Q5_K:
            return for_blocks(blocks, out,
                              [&](auto* block) { return six_bit_group(type, block, group); });
        case StoredType::Q6_K:
            return for_blocks(blocks, out, [&](auto* block) { return q6_k_group(block, group); });
        case StoredType::IQ4_XS:
            return for_blocks(blocks, out, [&](auto* block) { return iq4_xs_group(block, group); });
        case StoredType::Q8_0:
            return for_blocks(blocks, out, q8_0_block);
        case StoredType::Q4_0:
        case StoredType::Q4_1:
            return for_blocks(blocks, out, [&](auto* block) { return q4_block(type, block); });
        case StoredType::F32:
        case StoredType::F16:
        case StoredType::BF16:
            break;
    }
    PACE_CHECK(false, "a type that has blocks");
}

bool is_finite_group(PackedType type, const StoredCodes& group) {
    const BlockFormat format = block_format(type);
    if (format.form != ScaleForm::Power)
        return is_finite_half(group.d) && is_finite_half(group.minimum);
    constexpr std::uint8_t kNan =
        255;  // as the OCP's MX formats have it; a kernel cannot scale by it
    if (group.scales[0] == kNan) return false;
    const float scale = mxfp4_scale(group.scales[0]);
    return std::all_of(group.codes.begin(), group.codes.end(), [&](std::uint8_t code) {
        return std::isfinite(scale * code_number(format, code));
    });
}

}  // namespace paceline

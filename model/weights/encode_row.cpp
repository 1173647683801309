#include "model/weights/encode_row.hpp"

#include <cstdint>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/quantise.hpp"

namespace paceline {
namespace {

constexpr int kHalfGroup = kQuantGroup / 2;

std::byte* put_half(std::byte* out, std::uint16_t bits) {
    std::memcpy(out, &bits, sizeof bits);
    return out + sizeof bits;
}

/// Byte i holds number i in its low half and number i + 16 in its high half.
void put_nibbles(const QuantisedGroup& group, std::byte* out) {
    for (int i = 0; i < kHalfGroup; ++i) {
        const auto low = static_cast<unsigned>(group.q[i]);
        const auto high = static_cast<unsigned>(group.q[i + kHalfGroup]);
        out[i] = static_cast<std::byte>(low | high << 4U);
    }
}

bool encode_group(StoredType type, const float* x, std::byte* out) {
    if (type == StoredType::Q8_0) {
        const QuantisedGroup group = quantise_int8(x);
        std::memcpy(put_half(out, group.scale), group.q, sizeof group.q);
        return is_finite_half(group.scale);
    }
    const bool with_minimum = type == StoredType::Q4_1;
    const QuantisedGroup group = with_minimum ? quantise_q4(x) : quantise_q4_0(x);
    out = put_half(out, group.scale);
    if (with_minimum) out = put_half(out, group.minimum);
    put_nibbles(group, out);
    return is_finite_half(group.scale) && is_finite_half(group.minimum);
}

}  // namespace

bool can_encode(StoredType type) {
    return type == StoredType::F32 || type == StoredType::BF16 || type == StoredType::Q8_0 ||
           type == StoredType::Q4_0 || type == StoredType::Q4_1;
}

bool encode_row(StoredType type, std::span<const float> row, std::span<std::byte> out) {
    PACE_CHECK(can_encode(type), "a type that is written");
    const TypeTraits shape = traits(type);
    PACE_CHECK(out.size() * shape.block_elements == row.size() * shape.block_bytes,
               "whole blocks, and their bytes");
    bool finite = all_finite(row);
    if (type == StoredType::F32) {
        std::memcpy(out.data(), row.data(), row.size_bytes());
        return finite;
    }
    std::byte* to = out.data();
    if (type == StoredType::BF16) {
        for (const float value : row) {
            const std::uint16_t bits = float_to_bfloat(value);
            finite = finite && is_finite_bfloat(bits);
            to = put_half(to, bits);
        }
        return finite;
    }
    for (std::size_t first = 0; first < row.size(); first += kQuantGroup) {
        finite = encode_group(type, row.data() + first, to) && finite;
        to += shape.block_bytes;
    }
    return finite;
}

}  // namespace paceline

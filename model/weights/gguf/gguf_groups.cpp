#include "model/weights/gguf/gguf_groups.hpp"

#include <cmath>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/weights/gguf/gguf_blocks.hpp"
#include "model/weights/gguf/gguf_bytes.hpp"

namespace paceline {
namespace {

constexpr int kHalfGroup = kQuantGroup / 2;

const std::byte* block_of(const TensorView& tensor, std::int64_t row, int group) {
    const TypeTraits shape = traits(tensor.type);
    const auto first = static_cast<std::size_t>(group) * kQuantGroup;
    return tensor.row(row) + first / shape.block_elements * shape.block_bytes;
}

/// Calls put(i, nibble) for the 32 nibbles whose low halves come first.
template <class Put>
void for_nibbles(const std::byte* quants, Put put) {
    for (int i = 0; i < kHalfGroup; ++i) {
        const int pair = byte_at(quants + i);
        put(i, pair & 15);
        put(i + kHalfGroup, pair >> 4);
    }
}

void put_table(const std::byte* quants,
               const std::array<std::int8_t, 16>& table,
               QuantisedGroup& to) {
    for_nibbles(quants, [&](int i, int n) { to.q[i] = table[static_cast<std::size_t>(n)]; });
}

QuantisedGroup q5_0_group(const std::byte* block) {
    QuantisedGroup to;
    to.scale = load_number<std::uint16_t>(block);
    const auto high = load_number<std::uint32_t>(block + 2);
    for_nibbles(block + 6, [&](int i, int n) {
        const auto bit = static_cast<int>(high >> static_cast<unsigned>(i) & 1U);
        to.q[i] = static_cast<std::int8_t>(n + 16 * bit - 16);
    });
    return to;
}

std::optional<QuantisedGroup> mxfp4_group(const std::byte* block) {
    const int power = byte_at(block) - 128;
    if (power < -24 || power > 15) return std::nullopt;
    QuantisedGroup to;
    to.scale = float_to_half(std::ldexp(1.0F, power));
    put_table(block + 1, kMxfp4Table, to);
    return to;
}

}  // namespace

bool has_int8_form(StoredType type) {
    return type == StoredType::Q8_0 || type == StoredType::Q5_0 || type == StoredType::IQ4_NL ||
           type == StoredType::MXFP4;
}

std::optional<QuantisedGroup> stored_int8_group(const TensorView& tensor,
                                                std::int64_t row,
                                                int group) {
    PACE_CHECK(has_int8_form(tensor.type) && tensor.added == nullptr, "blocks of this form");
    const std::byte* block = block_of(tensor, row, group);
    if (tensor.type == StoredType::MXFP4) return mxfp4_group(block);
    if (tensor.type == StoredType::Q5_0) return q5_0_group(block);
    QuantisedGroup to;
    to.scale = load_number<std::uint16_t>(block);
    if (tensor.type == StoredType::IQ4_NL) {
        put_table(block + 2, kIq4Table, to);
    } else {
        std::memcpy(to.q, block + 2, sizeof to.q);
    }
    return to;
}

}  // namespace paceline

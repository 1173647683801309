#include "model/weights/synthetic/synthetic_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/weights/packed_type.hpp"
#include "model/weights/synthetic/synthetic_blocks.hpp"
#include "model/weights/synthetic/synthetic_numbers.hpp"

namespace paceline {
namespace {

constexpr int kBlock = 32;

/// The bits of a row's columns, one after the other.
class Bits {
public:
    Bits(std::uint64_t seed, std::int64_t row, int columns)
        : seed_{seed}, row_{static_cast<std::uint64_t>(row)}, columns_{columns} {}

    std::uint32_t next() {
        if (at_ % kRandomColumns == 0) draw_ = random_draw(seed_, row_, columns_, at_);
        return random_bits(draw_, at_++);
    }

private:
    std::uint64_t seed_;
    std::uint64_t row_;
    int columns_;
    int at_ = 0;
    std::uint64_t draw_ = 0;
};

void plain_row(StoredType type, Bits bits, float scale, int columns, std::byte* out) {
    for (int c = 0; c < columns; ++c) {
        const float value = scale * random_unit(bits.next());
        if (type == StoredType::F32) {
            std::memcpy(out + 4 * static_cast<std::size_t>(c), &value, sizeof value);
            continue;
        }
        const std::uint16_t half =
            type == StoredType::BF16 ? float_to_bfloat(value) : float_to_half(value);
        std::memcpy(out + 2 * static_cast<std::size_t>(c), &half, sizeof half);
    }
}

void int8_block(Bits& bits, int count, std::byte* quants) {
    for (int i = 0; i < count; ++i)
        quants[i] = static_cast<std::byte>(static_cast<std::int8_t>(random_int8(bits.next())));
}

/// Byte i holds numbers i and i + 16 (docs/file-formats.md).
void int4_block(Bits& bits, int count, std::byte* quants) {
    for (int i = 0; i < count; ++i) {
        const auto number = static_cast<unsigned>(random_int4(bits.next()));
        quants[i % 16] |= static_cast<std::byte>(i < 16 ? number : number << 4U);
    }
}

}  // namespace

std::uint64_t random_seed(std::uint64_t seed, std::string_view tensor) {
    std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
    for (const char letter : tensor) {
        hash ^= static_cast<unsigned char>(letter);
        hash *= 0x100000001B3U;
    }
    return random_draw(seed ^ hash, 0, 1, 0);
}

float random_scale(StoredType type, int columns) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(columns));
    if (type == StoredType::Q8_0) return deviation * kRandomInt8;
    if (type == StoredType::Q4_0 || type == StoredType::Q4_1) return deviation * kRandomInt4;
    PACE_CHECK(traits(type).block_elements == 1, "a plain type, Q8_0, Q4_0 or Q4_1");
    return deviation * kRandomUnit;
}

int random_row_columns(StoredType type, int columns) {
    const auto block = static_cast<int>(traits(type).block_elements);
    return (columns + block - 1) / block * block;
}

void random_row(
    StoredType type, std::uint64_t seed, std::int64_t row, int columns, std::span<std::byte> out) {
    const TypeTraits of = traits(type);
    const auto blocks =
        static_cast<std::size_t>(random_row_columns(type, columns)) / of.block_elements;
    PACE_CHECK(out.size() == blocks * of.block_bytes, "room for the row's blocks");
    if (of.block_elements > 1 && is_block_type(natural_type(type)))
        return random_blocks(type, seed, row, columns, out);
    Bits bits{seed, row, columns};
    const float scale = random_scale(type, columns);
    if (of.block_elements == 1) return plain_row(type, bits, scale, columns, out.data());
    const std::uint16_t d = float_to_half(scale);
    const std::uint16_t m = float_to_half(-kRandomInt4Mean * half_to_float(d));
    std::fill(out.begin(), out.end(), std::byte{0});
    std::byte* block = out.data();
    for (int first = 0; first < columns; first += kBlock, block += of.block_bytes) {
        const int count = std::min(kBlock, columns - first);
        std::memcpy(block, &d, sizeof d);
        if (type == StoredType::Q8_0) {
            int8_block(bits, count, block + 2);
        } else if (type == StoredType::Q4_0) {
            int4_block(bits, count, block + 2);
        } else {
            std::memcpy(block + 2, &m, sizeof m);
            int4_block(bits, count, block + 4);
        }
    }
}

}  // namespace paceline

#include "model/weights/tensor.hpp"

#include <bit>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/weights/low_rank.hpp"

namespace paceline {
namespace {

constexpr std::int64_t kBlock = 32;  // elements of a Q8_0, Q4_0 or Q4_1 block

/// Reads a little-endian value at any address: tensors are only as aligned as the file says.
template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

float load_half(const std::byte* at) {
    return half_to_float(load<std::uint16_t>(at));
}

void dequantize_q8_0(const std::byte* block, std::span<float> out) {
    for (std::int64_t first = 0; first < std::ssize(out); first += kBlock, block += 34) {
        const float scale = load_half(block);
        for (std::int64_t i = 0; i < kBlock; ++i) {
            out[static_cast<std::size_t>(first + i)] =
                scale * static_cast<float>(load<std::int8_t>(block + 2 + i));
        }
    }
}

void dequantize_q4_0(const std::byte* block, std::span<float> out) {
    for (std::int64_t first = 0; first < std::ssize(out); first += kBlock, block += 18) {
        const float scale = load_half(block);
        for (std::int64_t i = 0; i < kBlock / 2; ++i) {
            const auto pair = std::to_integer<int>(block[2 + i]);
            const auto at = static_cast<std::size_t>(first + i);
            out[at] = scale * static_cast<float>((pair & 15) - 8);
            out[at + kBlock / 2] = scale * static_cast<float>((pair >> 4) - 8);
        }
    }
}

void dequantize_q4_1(const std::byte* block, std::span<float> out) {
    for (std::int64_t first = 0; first < std::ssize(out); first += kBlock, block += 20) {
        const float scale = load_half(block);
        const float minimum = load_half(block + 2);
        for (std::int64_t i = 0; i < kBlock / 2; ++i) {
            const auto pair = std::to_integer<int>(block[4 + i]);
            const auto at = static_cast<std::size_t>(first + i);
            out[at] = scale * static_cast<float>(pair & 15) + minimum;
            out[at + kBlock / 2] = scale * static_cast<float>(pair >> 4) + minimum;
        }
    }
}

/// The row as the file has it.
void read_stored_row(const TensorView& tensor, std::int64_t row, std::span<float> out) {
    const std::byte* from = tensor.row(row);
    switch (tensor.type) {
        case StoredType::F32:
            std::memcpy(out.data(), from, out.size_bytes());
            return;
        case StoredType::F16:
            for (float& value : out) value = load_half(from), from += 2;
            return;
        case StoredType::BF16:
            for (float& value : out) value = bfloat_to_float(load<std::uint16_t>(from)), from += 2;
            return;
        case StoredType::Q8_0:
            dequantize_q8_0(from, out);
            return;
        case StoredType::Q4_0:
            dequantize_q4_0(from, out);
            return;
        case StoredType::Q4_1:
            dequantize_q4_1(from, out);
            return;
    }
}

/// Float32, the components of the rank in order: every process that merges gets the same bits.
void add_row(const LowRank& update, std::int64_t row, std::span<float> out) {
    const auto rank = static_cast<std::size_t>(update.rank);
    PACE_CHECK(update.a.size() == rank * out.size(), "A has a column for each place");
    const std::span<const float> b =
        std::span{update.b}.subspan(static_cast<std::size_t>(row) * rank, rank);
    for (std::size_t r = 0; r < rank; ++r) {
        const float factor = update.scale * b[r];
        const float* a = update.a.data() + r * out.size();
        for (std::size_t c = 0; c < out.size(); ++c) out[c] += factor * a[c];
    }
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "GGUF data are read in place");

TypeTraits traits(StoredType type) {
    switch (type) {
        case StoredType::F32:
            return {"F32", 1, 4};
        case StoredType::F16:
            return {"F16", 1, 2};
        case StoredType::BF16:
            return {"BF16", 1, 2};
        case StoredType::Q8_0:
            return {"Q8_0", 32, 34};
        case StoredType::Q4_0:
            return {"Q4_0", 32, 18};
        case StoredType::Q4_1:
            return {"Q4_1", 32, 20};
    }
    PACE_CHECK(false, "a StoredType outside its enumeration");
}

void dequantize_row(const TensorView& tensor, std::int64_t row, std::span<float> out) {
    PACE_CHECK(row >= 0 && row < tensor.rows, "the row lies inside the tensor");
    PACE_CHECK(std::ssize(out) == tensor.cols, "one place per column");
    read_stored_row(tensor, row, out);
    if (tensor.added != nullptr) add_row(*tensor.added, row, out);
}

float half_to_float(std::uint16_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
    const std::uint32_t exponent = (bits >> 10U) & 31U;
    const std::uint32_t fraction = bits & 0x3FFU;
    if (exponent == 31) {  // infinity or NaN, whose payload is kept
        return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13U));
    }
    if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact in float32
        const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
    }
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
}

std::uint16_t float_to_half(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) {  // NaN: quiet, with what fits of its payload
        return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13U) & 0x3FFU));
    }
    if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // >= 65520
    if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24
        // Adding 0.5 puts the units place of float32 at 2^-24, and the addition rounds to even.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<std::uint16_t>(sign |
                                          (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
    }
    const std::uint32_t odd = (magnitude >> 13U) & 1U;
    const std::uint32_t rounded = magnitude - (112U << 23U) + 0xFFFU + odd;
    return static_cast<std::uint16_t>(sign | (rounded >> 13U));
}

float bfloat_to_float(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

std::uint16_t float_to_bfloat(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {  // rounding could carry a NaN into infinity
        return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
    }
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

}  // namespace paceline

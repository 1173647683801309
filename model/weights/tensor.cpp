#include "model/weights/tensor.hpp"

#include <bit>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/weights/gguf/gguf_blocks.hpp"
#include "model/weights/gguf/gguf_bytes.hpp"
#include "model/weights/low_rank.hpp"

namespace paceline {
namespace {

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
            for (float& value : out)
                value = bfloat_to_float(load_number<std::uint16_t>(from)), from += 2;
            return;
        case StoredType::Q8_0:
            return dequantize_q8_0(from, out);
        case StoredType::Q4_0:
            return dequantize_q4_0(from, out);
        case StoredType::Q4_1:
            return dequantize_q4_1(from, out);
        case StoredType::Q5_0:
            return dequantize_q5_0(from, out);
        case StoredType::Q5_1:
            return dequantize_q5_1(from, out);
        case StoredType::Q2_K:
            return dequantize_q2_k(from, out);
        case StoredType::Q3_K:
            return dequantize_q3_k(from, out);
        case StoredType::Q4_K:
            return dequantize_q4_k(from, out);
        case StoredType::Q5_K:
            return dequantize_q5_k(from, out);
        case StoredType::Q6_K:
            return dequantize_q6_k(from, out);
        case StoredType::IQ4_NL:
            return dequantize_iq4_nl(from, out);
        case StoredType::IQ4_XS:
            return dequantize_iq4_xs(from, out);
        case StoredType::MXFP4:
            return dequantize_mxfp4(from, out);
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
        case StoredType::Q5_0:
            return {"Q5_0", 32, 22};
        case StoredType::Q5_1:
            return {"Q5_1", 32, 24};
        case StoredType::Q2_K:
            return {"Q2_K", 256, 84};
        case StoredType::Q3_K:
            return {"Q3_K", 256, 110};
        case StoredType::Q4_K:
            return {"Q4_K", 256, 144};
        case StoredType::Q5_K:
            return {"Q5_K", 256, 176};
        case StoredType::Q6_K:
            return {"Q6_K", 256, 210};
        case StoredType::IQ4_NL:
            return {"IQ4_NL", 32, 18};
        case StoredType::IQ4_XS:
            return {"IQ4_XS", 256, 136};
        case StoredType::MXFP4:
            return {"MXFP4", 32, 17};
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

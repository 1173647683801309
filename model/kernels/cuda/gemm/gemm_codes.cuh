// How a lane converts its part of a record (gemm_records.hpp): codes to pairs of bf16 numbers,
// scales to floats.
//
// Codes are converted without a conversion instruction, whose rate is a quarter of an addition's:
// their bits become the lowest bits of the mantissa of a power of two (a float or bf16 number),
// which is then subtracted. This is exact and takes a shift, a mask and an addition for two codes.
#pragma once

#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm/gemm_records.hpp"

namespace paceline::cuda {

/// Words that a lane has loaded. An array has at least one element; of kCount = 0 it is not used.
template <int kCount>
struct Words {
    std::uint32_t of[kCount == 0 ? 1 : kCount];
};

/// Reads words from shared memory or, with kStreamed, from global memory by load_streamed().
template <int kBytes, bool kStreamed>
PACE_DEVICE Words<kBytes / 4> read_words(const unsigned char* from) {
    if constexpr (kBytes == 16) {
        const auto* at = reinterpret_cast<const Words4*>(from);
        const Words4 words = kStreamed ? load_streamed(at) : *at;
        return {{words.x, words.y, words.z, words.w}};
    } else if constexpr (kBytes == 8) {
        const auto* at = reinterpret_cast<const Words2*>(from);
        const Words2 words = kStreamed ? load_streamed(at) : *at;
        return {{words.x, words.y}};
    } else if constexpr (kBytes == 4) {
        const auto* at = reinterpret_cast<const std::uint32_t*>(from);
        return {{kStreamed ? load_streamed(at) : *at}};
    } else {
        return {{0}};
    }
}

/// The float16 in the lower or upper half of a word.
PACE_DEVICE float half_of(std::uint32_t word, int upper) {
    return half_to_float(static_cast<std::uint16_t>(upper != 0 ? word >> 16U : word & 0xFFFFU));
}

/// `bits` (0 .. 255) minus `offset` as a float: as the lowest bits of 2^23 they add their value to
/// it.
PACE_DEVICE float number_of(std::uint32_t bits, int offset) {
    return float_of(bits | 0x4B000000U) - (8388608.0f + static_cast<float>(offset));
}
/// 2^(e - 128), the scale of an MXFP4 block; the two smallest are subnormal.
PACE_DEVICE float power_of(std::uint32_t e) {
    return float_of(e < 2 ? 0x00200000U << e : (e - 1) << 23U);
}
PACE_DEVICE std::uint32_t byte_of(std::uint32_t word, int i) {
    return word >> (8 * i) & 0xFFU;
}

/// Two bf16 numbers from bytes `i` and `i + 1` of a word, each an int8 plus 128. A number of 8 bits
/// is exact in bf16, the upper half of its float.
PACE_DEVICE std::uint32_t two_bytes(std::uint32_t word, int i) {
    constexpr int kOffset = 128;
    return (bits_of(number_of(byte_of(word, i), kOffset)) >> 16U) |
           (bits_of(number_of(byte_of(word, i + 1), kOffset)) & 0xFFFF0000U);
}

/// A word shifted right by `by`, or left by -by if that is negative.
PACE_DEVICE std::uint32_t moved(std::uint32_t word, int by) {
    return by >= 0 ? word >> by : word << -by;
}

/// The 16 entries of a table as bf16 numbers: lower bytes and upper bytes, four in a word.
struct TableWords {
    std::uint32_t lower[4], upper[4];
};
/// The bf16 bits of an integer in -255 .. 255.
constexpr std::uint32_t bf16_of(int number) {
    if (number == 0) return 0;
    const auto size = static_cast<std::uint32_t>(number < 0 ? -number : number);
    std::uint32_t exponent = 0;
    while (size >> (exponent + 1) != 0) ++exponent;
    const std::uint32_t fraction = (size << (7 - exponent)) & 0x7FU;
    return (number < 0 ? 0x8000U : 0U) | (127 + exponent) << 7U | fraction;
}
constexpr TableWords table_words(const std::array<std::int8_t, 16>& table) {
    TableWords words{};
    for (unsigned i = 0; i < 16; ++i) {
        const std::uint32_t bits = bf16_of(table[i]);
        words.lower[i / 4] |= (bits & 0xFFU) << (8 * (i % 4));
        words.upper[i / 4] |= (bits >> 8U) << (8 * (i % 4));
    }
    return words;
}

/// Bytes of `table` for four codes. Nibble i of `within` has the lower three bits of code i; nibble
/// i of `from` is i, plus 4 for an entry of the upper half of the table: permute_bytes() selectors.
PACE_DEVICE std::uint32_t look_up(const std::uint32_t (&table)[4],
                                  std::uint32_t within,
                                  std::uint32_t from) {
    return permute_bytes(permute_bytes(table[0], table[1], within),
                         permute_bytes(table[2], table[3], within), from);
}

/// The entries of the eight codes of a word, in pairs of neighbours.
template <CodeTable kTable>
PACE_DEVICE void table_pairs(std::uint32_t word, std::uint32_t (&pairs)[4]) {
    constexpr TableWords kWords = table_words(kTable == CodeTable::Iq4 ? kIq4Table : kMxfp4Table);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const std::uint32_t four = word >> (16 * j);
        const std::uint32_t within = four & 0x7777U;
        const std::uint32_t from = 0x3210U | (four & 0x8888U) >> 1U;
        const std::uint32_t lower = look_up(kWords.lower, within, from);
        const std::uint32_t upper = look_up(kWords.upper, within, from);
        pairs[2 * j] = permute_bytes(lower, upper, 0x5140U);
        pairs[2 * j + 1] = permute_bytes(lower, upper, 0x7362U);
    }
}

/// A lane's part of a record.
template <WeightType kType>
struct LaneRecord {
    static constexpr int kLow = plane_bytes(block_format(kType).low_bits);
    static constexpr int kTop = plane_bytes(block_format(kType).top_bits);
    static constexpr int kScales = scale_bytes(kType);
    static constexpr int kHead = head_bytes(kType);

    Words<kLow / 4> low;
    Words<kTop / 4> top;
    Words<kScales / 4> scales;
    Words<kHead / 4> head;

    /// `heads`: the head of the record's inputs, if the type has heads.
    template <bool kStreamed>
    PACE_DEVICE void read(const unsigned char* record, const unsigned char* heads) {
        low = read_words<kLow, kStreamed>(record + lane() * kLow);
        top = read_words<kTop, kStreamed>(record + record_parts(kType).top + lane() * kTop);
        scales =
            read_words<kScales, false>(record + record_parts(kType).scales + lane() / 4 * kScales);
        if constexpr (kHead > 0) head = read_words<kHead, false>(heads + lane() / 4 * kHead);
    }

    /// The numbers of the lane's eight codes of group `part` of output g (half = 0) or g + 8,
    /// before scaling.
    PACE_DEVICE void numbers(int part, int half, std::uint32_t (&pairs)[4]) const {
        constexpr BlockFormat kFormat = block_format(kType);
        if constexpr (kFormat.low_bits == 8) {
#pragma unroll
            for (int i = 0; i < 4; ++i) pairs[i] = two_bytes(low.of[2 * half + i / 2], i % 2 * 2);
        } else if constexpr (kFormat.table != CodeTable::None) {
            table_pairs<kFormat.table>(part == 0 ? low.of[half] : low.of[2 + half], pairs);
        } else {
            constexpr std::uint32_t kTwo128 = 0x43004300U;
            constexpr std::uint32_t kMinus = 0xC300U + static_cast<std::uint32_t>(kFormat.offset);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                pairs[i] = add_two_bf16(two_codes(part, half, i) | kTwo128, kMinus | kMinus << 16U);
        }
    }

    /// Codes 2i and 2i + 1 of the eight, in the lower and the upper half of a word.
    PACE_DEVICE std::uint32_t two_codes(int part, int half, int i) const {
        constexpr BlockFormat kFormat = block_format(kType);
        constexpr std::uint32_t kBothOnes = 0x00010001U;
        constexpr int kAbove = kFormat.low_bits;
        const int pair = 4 * half + i;
        std::uint32_t codes = 0;
        if constexpr (kFormat.low_bits == 4) {
            const std::uint32_t word = part == 0 ? low.of[half] : low.of[2 + half];
            codes = word >> (4 * i) & 15 * kBothOnes;
        } else {
            codes = (part == 0 ? low.of[0] : low.of[1]) >> (2 * pair) & 3 * kBothOnes;
        }
        if constexpr (kFormat.top_bits == 2) {
            const std::uint32_t word = part == 0 ? top.of[0] : top.of[1];
            codes |= moved(word, 2 * pair - kAbove) & (3 * kBothOnes) << kAbove;
        } else if constexpr (kFormat.top_bits == 1) {
            const std::uint32_t word = part == 0 ? top.of[0] : top.of[0] >> 8U;
            codes |= moved(word, pair - kAbove) & kBothOnes << kAbove;
        }
        return codes;
    }

    /// The scale of group `part` of output g (half = 0) or g + 8; in types with a scale per 16
    /// inputs, that of part h.
    PACE_DEVICE float scale(int part, int half, int h) const {
        constexpr ScaleForm kForm = block_format(kType).form;
        if constexpr (kForm == ScaleForm::Half) {
            return half_of(kScales == 4 || part == 0 ? scales.of[0] : scales.of[1], half);
        } else if constexpr (kForm == ScaleForm::HalfMinimum) {
            return half_of(part == 0 ? scales.of[0] : scales.of[2], half);
        } else if constexpr (kForm == ScaleForm::Power) {
            return power_of(byte_of(scales.of[0], 2 * part + half));
        } else {
            constexpr int kSign = 128;
            const float d = half_of(head.of[0], half);
            const std::uint32_t word =
                kScales == 4 || part == 0 ? scales.of[0] : scales.of[kScales / 4 - 1];
            if constexpr (kForm == ScaleForm::Block) {
                return d * number_of(byte_of(word, 2 * part + half) ^ 0x80U, kSign);
            } else if constexpr (kForm == ScaleForm::BlockHalves) {
                return d * number_of(byte_of(word, 2 * h + half) ^ 0x80U, kSign);
            } else if constexpr (kForm == ScaleForm::BlockMinimum) {
                return d * number_of(byte_of(word, half), 0);
            } else {
                return d * number_of(byte_of(word, 2 * h + half) & 15U, 0);
            }
        }
    }

    /// The minimum of the same inputs, which is added.
    PACE_DEVICE float minimum(int part, int half, int h) const {
        constexpr ScaleForm kForm = block_format(kType).form;
        static_assert(has_minimum(kForm), "only for types with a minimum");
        if constexpr (kForm == ScaleForm::HalfMinimum) {
            return half_of(part == 0 ? scales.of[1] : scales.of[3], half);
        } else {
            const float dmin = half_of(head.of[kHead / 4 - 1], half);
            const std::uint32_t word = part == 0 ? scales.of[0] : scales.of[kScales / 4 - 1];
            if constexpr (kForm == ScaleForm::BlockMinimum)
                return dmin * number_of(byte_of(word, 2 + half), 0);
            else
                return dmin * number_of(byte_of(word, 2 * h + half) >> 4U, 0);
        }
    }
};

}  // namespace paceline::cuda

#include "model/kernels/cuda/gemm/gemm_records.hpp"

#include <array>
#include <cstring>

#include "model/weights/gguf/gguf_codes.hpp"

namespace paceline::cuda {
namespace {

/// A lane's eight codes of a group.
using LaneCodes = std::array<std::uint8_t, 8>;

LaneCodes lane_codes(const StoredCodes& from, bool halves, std::size_t t) {
    LaneCodes codes;
    const std::uint8_t* first = from.codes.data() + (halves ? 4 * t : 8 * t);
    std::memcpy(codes.data(), first, 4);
    std::memcpy(codes.data() + 4, first + (halves ? 16 : 4), 4);
    return codes;
}

/// `bits` bits of each code from bit `below` on: those of even codes side by side from bit 0 of the
/// word, those of odd codes from bit 16.
std::uint32_t paired_fields(const LaneCodes& codes, int below, int bits) {
    const std::uint32_t mask = (1U << bits) - 1;
    std::uint32_t word = 0;
    for (int j = 0; j < 4; ++j) {
        const std::size_t at = 2 * static_cast<std::size_t>(j);
        const std::uint32_t pair = (static_cast<std::uint32_t>(codes[at]) >> below & mask) |
                                   (static_cast<std::uint32_t>(codes[at + 1]) >> below & mask)
                                       << 16U;
        word |= pair << (bits * j);
    }
    return word;
}

/// Indices into a table, one after the other.
std::uint32_t nibbles_in_order(const LaneCodes& codes) {
    std::uint32_t word = 0;
    for (int i = 0; i < 8; ++i) word |= (codes[static_cast<std::size_t>(i)] & 15U) << (4 * i);
    return word;
}

void add_bits(std::byte* lane, int word, std::uint32_t bits) {
    std::uint32_t sum = 0;
    std::memcpy(&sum, lane + 4 * word, sizeof sum);
    sum |= bits;
    std::memcpy(lane + 4 * word, &sum, sizeof sum);
}

/// Writes `bits` bits of a lane's codes, from bit `below` on, to the places that code_place()
/// names.
void put_fields(WeightType type,
                const LaneCodes& codes,
                int below,
                int bits,
                int half,
                int part,
                std::byte* lane) {
    switch (bits) {
        case 8:
            std::memcpy(lane + 8 * half, codes.data(), codes.size());
            return;
        case 4:
            return add_bits(lane, 2 * part + half,
                            block_format(type).table != CodeTable::None
                                ? nibbles_in_order(codes)
                                : paired_fields(codes, below, bits));
        case 2:
            return add_bits(lane, part, paired_fields(codes, below, bits) << (8 * half));
        default:
            return add_bits(lane, 0, paired_fields(codes, below, bits) << (8 * part + 4 * half));
    }
}

void put_half(std::byte* at, std::uint16_t value) {
    std::memcpy(at, &value, sizeof value);
}

std::uint16_t negated(std::uint16_t half) {
    return half ^ 0x8000U;
}

/// Writes the scales of output g (half = 0) or g + 8; those of both begin at `to`.
void put_scales(ScaleForm form, const StoredCodes& from, int half, int part, std::byte* to) {
    switch (form) {
        case ScaleForm::Half:
            return put_half(to + 4 * part + 2 * half, from.d);
        case ScaleForm::HalfMinimum:
            put_half(to + 8 * part + 2 * half, from.d);
            return put_half(to + 8 * part + 4 + 2 * half, from.minimum);
        case ScaleForm::Power:
        case ScaleForm::Block:
            to[2 * part + half] = std::byte{from.scales[0]};
            return;
        case ScaleForm::BlockMinimum:
            to[4 * part + half] = std::byte{from.scales[0]};
            to[4 * part + 2 + half] = std::byte{from.minimums[0]};
            return;
        case ScaleForm::BlockHalves:
        case ScaleForm::BlockMinima:
            break;
    }
    for (int h = 0; h < 2; ++h) {
        const auto at = static_cast<std::size_t>(h);
        // BlockHalves has no minima: they are 0.
        to[4 * part + 2 * h + half] =
            static_cast<std::byte>(from.scales[at] | from.minimums[at] << 4);
    }
}

}  // namespace

void put_group(
    WeightType type, const StoredCodes& from, int o, int group, int inputs, std::byte* tile) {
    const BlockFormat format = block_format(type);
    const RecordParts parts = record_parts(type);
    const int groups_a_step = step_inputs(type) / 32;
    const int part = group % groups_a_step;
    std::byte* record = tile + static_cast<std::size_t>(group / groups_a_step) * record_bytes(type);
    const int half = o / 8;
    for (std::size_t t = 0; t < 4; ++t) {
        const LaneCodes codes = lane_codes(from, has_halves(format.form), t);
        const std::size_t lane = 4 * static_cast<std::size_t>(o % 8) + t;
        const auto bytes = [&](int bits) {
            return lane * static_cast<std::size_t>(plane_bytes(bits));
        };
        put_fields(type, codes, 0, format.low_bits, half, part, record + bytes(format.low_bits));
        if (format.top_bits > 0)
            put_fields(type, codes, format.low_bits, format.top_bits, half, part,
                       record + parts.top + bytes(format.top_bits));
    }
    put_scales(format.form, from, half, part,
               record + parts.scales + static_cast<std::ptrdiff_t>(o % 8) * scale_bytes(type));
    if (!has_head(format.form)) return;
    std::byte* head =
        tile + static_cast<std::size_t>(steps_of(type, inputs)) * record_bytes(type) +
        static_cast<std::ptrdiff_t>(group * 32 / kHeadInputs * 8 + o % 8) * head_bytes(type);
    put_half(head + 2 * half, from.d);
    if (has_minimum(format.form)) put_half(head + 4 + 2 * half, negated(from.minimum));
}

void empty_tile(WeightType type, int inputs, std::byte* tile) {
    std::memset(tile, 0, tile_bytes(type, inputs));
    if (type != WeightType::Int8) return;
    for (int step = 0; step < steps_of(type, inputs); ++step)
        std::memset(tile + static_cast<std::size_t>(step) * record_bytes(type), 128,
                    static_cast<std::size_t>(record_parts(type).top));
}

}  // namespace paceline::cuda

#include "model/kernels/cpu/packed_blocks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/gguf/gguf_blocks.hpp"
#include "model/weights/gguf/gguf_codes.hpp"

namespace paceline {
namespace {

constexpr int kWords = 8;  // of 4 codes in a group
constexpr std::uint32_t kEachByte = 0x01010101U;

/// The parts of one group of one lane.
struct Place {
    std::uint16_t* d;  // of the head; dmin stands kTileRows after it
    std::uint8_t* scales;
    std::uint8_t* codes;
};

Place place(const PackedMatrix& matrix, const BlockFormat& format, int row, int group) {
    auto* tile = reinterpret_cast<std::uint8_t*>(matrix.data) +
                 static_cast<std::size_t>(row / kTileRows) * matrix.tile_bytes();
    const GroupOffsets at = group_offsets(format, group);
    const int lane = row % kTileRows;
    // Without dmin a head has the d of two blocks.
    const int second = has_minimum(format.form) ? 0 : group / kBlockGroups % 2;
    return {reinterpret_cast<std::uint16_t*>(tile + at.head) + second * kTileRows + lane,
            tile + at.scales, tile + at.codes + 4 * lane};
}

/// Words w of a plane whose fields are `bits` wide share a line, 8 / bits of them.
struct PlaneWord {
    int line;
    int shift;
};
PlaneWord plane_word(int bits, int word) {
    const int in_line = 8 / bits;
    return {kLine * (word / in_line), bits * (word % in_line)};
}

/// ORs bits [below, below + bits) of each code into its place in a plane.
void put_plane(std::uint8_t* plane, const std::uint32_t (&words)[kWords], int below, int bits) {
    const std::uint32_t mask = kEachByte * ((1U << bits) - 1);
    for (int w = 0; w < kWords; ++w) {
        const PlaneWord at = plane_word(bits, w);
        std::uint32_t four = 0;
        std::memcpy(&four, plane + at.line, sizeof four);
        four |= (words[w] >> below & mask) << at.shift;
        std::memcpy(plane + at.line, &four, sizeof four);
    }
}

void add_plane(const std::uint8_t* plane, std::uint32_t (&words)[kWords], int below, int bits) {
    const std::uint32_t mask = kEachByte * ((1U << bits) - 1);
    for (int w = 0; w < kWords; ++w) {
        const PlaneWord at = plane_word(bits, w);
        std::uint32_t four = 0;
        std::memcpy(&four, plane + at.line, sizeof four);
        words[w] |= (four >> at.shift & mask) << below;
    }
}

std::uint16_t negated(std::uint16_t half) {
    return half ^ 0x8000U;
}

void put_scales(const StoredCodes& from, ScaleForm form, int lane, const Place& to) {
    const auto put_half = [&](int at, std::uint16_t half) {
        std::memcpy(to.scales + 2 * (at + lane), &half, sizeof half);
    };
    switch (form) {
        case ScaleForm::Half:
            put_half(0, from.d);
            return;
        case ScaleForm::HalfMinimum:
            put_half(0, from.d);
            put_half(kTileRows, from.minimum);
            return;
        case ScaleForm::Power:
        case ScaleForm::Block:
            to.scales[lane] = from.scales[0];
            break;
        case ScaleForm::BlockHalves:
            to.scales[lane] = from.scales[0];
            to.scales[kTileRows + lane] = from.scales[1];
            break;
        case ScaleForm::BlockMinimum:
            to.scales[lane] = from.scales[0];
            to.scales[kTileRows + lane] = from.minimums[0];
            break;
        case ScaleForm::BlockMinima:
            for (std::size_t h = 0; h < 2; ++h)
                to.scales[h * kTileRows + static_cast<std::size_t>(lane)] =
                    static_cast<std::uint8_t>(from.scales[h] | from.minimums[h] << 4);
            break;
    }
    if (!has_head(form)) return;
    to.d[0] = from.d;
    if (has_minimum(form)) to.d[kTileRows] = negated(from.minimum);
}

/// What a code of a row of scale 1 without minimum stands for.
float number_of(const BlockFormat& format, std::uint8_t code) {
    switch (format.table) {
        case CodeTable::None:
            break;
        case CodeTable::Iq4:
            return kIq4Table[code];
        case CodeTable::Mxfp4:
            return kMxfp4Table[code];
    }
    return static_cast<float>(code - format.offset);
}

bool finite(const StoredCodes& from, const BlockFormat& format) {
    if (format.form != ScaleForm::Power)
        return is_finite_half(from.d) && is_finite_half(from.minimum);
    constexpr std::uint8_t kNan =
        255;  // as the OCP's MX formats have it; a kernel cannot scale by it
    if (from.scales[0] == kNan) return false;
    const float scale = mxfp4_scale(from.scales[0]);
    return std::all_of(from.codes.begin(), from.codes.end(), [&](std::uint8_t code) {
        return std::isfinite(scale * number_of(format, code));
    });
}

struct GroupScale {
    float scale;
    float minimum;  // is added
};

/// Of numbers 16 h to 16 h + 15 of a group.
GroupScale scale_of(const Place& from, ScaleForm form, int lane, int h) {
    const auto half = [&](int at) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, from.scales + 2 * (at + lane), sizeof bits);
        return half_to_float(bits);
    };
    const auto whole = [&](int at) { return static_cast<float>(from.scales[at + lane]); };
    const auto with_sign = [&](int at) {
        return static_cast<float>(static_cast<std::int8_t>(from.scales[at + lane]));
    };
    const float d = has_head(form) ? half_to_float(from.d[0]) : 0.0f;
    switch (form) {
        case ScaleForm::Half:
            return {half(0), 0};
        case ScaleForm::HalfMinimum:
            return {half(0), half(kTileRows)};
        case ScaleForm::Power:
            return {mxfp4_scale(from.scales[lane]), 0};
        case ScaleForm::Block:
            return {d * with_sign(0), 0};
        case ScaleForm::BlockHalves:
            return {d * with_sign(h * kTileRows), 0};
        case ScaleForm::BlockMinimum:
            return {d * whole(0), half_to_float(from.d[kTileRows]) * whole(kTileRows)};
        case ScaleForm::BlockMinima:
            break;
    }
    const int both = from.scales[h * kTileRows + lane];
    return {d * static_cast<float>(both & 15),
            half_to_float(from.d[kTileRows]) * static_cast<float>(both >> 4)};
}

}  // namespace

bool put_block(const PackedMatrix& matrix, std::int64_t row, int block, const std::byte* stored) {
    const BlockFormat format = block_format(matrix.type);
    const StoredType type = stored_type(matrix.type);
    const auto at = static_cast<int>(row);
    const int groups = static_cast<int>(traits(type).block_elements) / kGroup;
    bool all_finite = true;
    for (int g = 0; g < groups; ++g) {
        const StoredCodes from = stored_codes(type, stored, g);
        const Place to = place(matrix, format, at, block * groups + g);
        std::uint32_t words[kWords];
        std::memcpy(words, from.codes.data(), sizeof words);
        put_plane(to.codes, words, 0, format.low_bits);
        if (format.top_bits > 0)
            put_plane(to.codes + kLine * format.low_bits, words, format.low_bits, format.top_bits);
        put_scales(from, format.form, at % kTileRows, to);
        all_finite = finite(from, format) && all_finite;
    }
    return all_finite;
}

void get_block_group(const PackedMatrix& matrix, int row, int group, std::span<float> out) {
    PACE_CHECK(std::ssize(out) == kGroup, "blocks are whole groups");
    const BlockFormat format = block_format(matrix.type);
    const Place from = place(matrix, format, row, group);
    std::uint32_t words[kWords] = {};
    add_plane(from.codes, words, 0, format.low_bits);
    if (format.top_bits > 0)
        add_plane(from.codes + kLine * format.low_bits, words, format.low_bits, format.top_bits);
    std::array<std::uint8_t, kGroup> codes = {};
    std::memcpy(codes.data(), words, sizeof words);
    for (int h = 0; h < 2; ++h) {
        const GroupScale of = scale_of(from, format.form, row % kTileRows, h);
        const std::size_t first = kGroup / 2 * static_cast<std::size_t>(h);
        for (std::size_t k = first; k < first + kGroup / 2; ++k) {
            const float product = of.scale * number_of(format, codes[k]);
            out[k] = has_minimum(format.form) ? product + of.minimum : product;
        }
    }
}

}  // namespace paceline

#include "model/kernels/cpu/packed_blocks.hpp"

#include <array>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/kernels/cpu/tile_group.hpp"
#include "model/weights/gguf/gguf_blocks.hpp"

namespace paceline {
namespace {

constexpr int kWords = 8;  // of 4 codes in a group
constexpr std::uint32_t kEachByte = 0x01010101U;

/// Words w of a plane whose fields are `bits` wide share a line, 8 / bits of them.
struct PlaneWord {
    int line;
    int shift;
};
PlaneWord plane_word(int bits, int word) {
    const int in_line = 8 / bits;
    return {kLine * (word / in_line), bits * (word % in_line)};
}

/// Word i of a lane: its codes 4i to 4i + 3.
using LaneWords = std::uint32_t[kWords][kTileRows];

/// Writes bits [below, below + bits) of each code as a plane.
void put_plane(std::uint8_t* plane, const LaneWords& words, int below, int bits) {
    const std::uint32_t mask = kEachByte * ((1U << bits) - 1);
    const int in_line = 8 / bits;
    for (int first = 0; first < kWords; first += in_line, plane += kLine) {
        std::uint32_t line[kTileRows] = {};
        for (int i = 0; i < in_line; ++i) {
            for (int lane = 0; lane < kTileRows; ++lane)
                line[lane] |= (words[first + i][lane] >> below & mask) << (bits * i);
        }
        std::memcpy(plane, line, sizeof line);
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

void put_scales(const StoredCodes& from, ScaleForm form, int lane, const TileGroup& to) {
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
            to.scales[lane] = from.scales[0];
            return;
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
    to.head[lane] = from.d;
    if (has_minimum(form)) to.head[kTileRows + lane] = negated(from.minimum);
}

struct GroupScale {
    float scale;
    float minimum;  // is added
};

/// Of numbers 16 h to 16 h + 15 of a group.
GroupScale scale_of(const TileGroup& from, ScaleForm form, int lane, int h) {
    const auto half = [&](int at) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, from.scales + 2 * (at + lane), sizeof bits);
        return half_to_float(bits);
    };
    const auto whole = [&](int at) { return static_cast<float>(from.scales[at + lane]); };
    const auto with_sign = [&](int at) {
        return static_cast<float>(static_cast<std::int8_t>(from.scales[at + lane]));
    };
    const float d = has_head(form) ? half_to_float(from.head[lane]) : 0.0f;
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
            return {d * whole(0), half_to_float(from.head[kTileRows + lane]) * whole(kTileRows)};
        case ScaleForm::BlockMinima:
            break;
    }
    const int both = from.scales[h * kTileRows + lane];
    return {d * static_cast<float>(both & 15),
            half_to_float(from.head[kTileRows + lane]) * static_cast<float>(both >> 4)};
}

}  // namespace

StoredCodes empty_group(PackedType type) {
    StoredCodes group;
    if (type == PackedType::Int8) group.codes.fill(128);
    return group;
}

void put_group(const PackedMatrix& matrix,
               int tile,
               int group,
               std::span<const StoredCodes, kTileRows> lanes) {
    const BlockFormat format = block_format(matrix.type);
    const TileGroup to = tile_group(matrix, tile, group);
    LaneWords words;
    for (int lane = 0; lane < kTileRows; ++lane) {
        const StoredCodes& from = lanes[static_cast<std::size_t>(lane)];
        for (int w = 0; w < kWords; ++w)
            std::memcpy(&words[w][lane], from.codes.data() + 4 * w, sizeof words[w][lane]);
        put_scales(from, format.form, lane, to);
    }
    put_plane(to.codes, words, 0, format.low_bits);
    if (format.top_bits > 0)
        put_plane(to.codes + kLine * format.low_bits, words, format.low_bits, format.top_bits);
}

void get_group(const PackedMatrix& matrix, int row, int group, std::span<float> out) {
    PACE_CHECK(std::ssize(out) == kGroup, "a whole group");
    const BlockFormat format = block_format(matrix.type);
    const TileGroup from = tile_group(matrix, row / kTileRows, group);
    const int lane = row % kTileRows;
    const std::uint8_t* codes_of_lane = from.codes + 4 * lane;
    std::uint32_t words[kWords] = {};
    add_plane(codes_of_lane, words, 0, format.low_bits);
    if (format.top_bits > 0)
        add_plane(codes_of_lane + kLine * format.low_bits, words, format.low_bits, format.top_bits);
    std::array<std::uint8_t, kGroup> codes = {};
    std::memcpy(codes.data(), words, sizeof words);
    for (int h = 0; h < 2; ++h) {
        const GroupScale of = scale_of(from, format.form, lane, h);
        const std::size_t first = kGroup / 2 * static_cast<std::size_t>(h);
        for (std::size_t k = first; k < first + kGroup / 2; ++k) {
            const float product = of.scale * code_number(format, codes[k]);
            out[k] = has_minimum(format.form) ? product + of.minimum : product;
        }
    }
}

}  // namespace paceline

#include "model/kernels/cpu/packed_matrix.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/kernels/cpu/packed_blocks.hpp"
#include "model/kernels/cpu/tile_group.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/gguf/gguf_groups.hpp"
#include "model/weights/quantise.hpp"

namespace paceline {
namespace {

int int8_index(int lane, int k) {
    return (k / 4) * 64 + lane * 4 + k % 4;
}

void put_half(std::uint8_t* scales, int at, std::uint16_t half) {
    std::memcpy(scales + 2 * static_cast<std::ptrdiff_t>(at), &half, sizeof half);
}

bool put_int8_group(const QuantisedGroup& group, int lane, const TileGroup& to) {
    put_half(to.scales, lane, group.scale);
    for (int k = 0; k < kGroup; ++k)
        to.codes[int8_index(lane, k)] = static_cast<std::uint8_t>(group.q[k] + 128);
    return is_finite_half(group.scale);
}

/// Stores the nibble of input k (of 32) of output `lane`, whose place holds zeros.
void put_nibble(std::uint8_t* codes, int lane, int k, int nibble) {
    const int byte = (k / 8) * 64 + lane * 4 + k % 4;
    const int shift = (k % 8) < 4 ? 0 : 4;
    codes[byte] = static_cast<std::uint8_t>(codes[byte] | (nibble << shift));
}

bool put_q4_group(const QuantisedGroup& group, int lane, const TileGroup& to) {
    put_half(to.scales, lane, group.scale);
    put_half(to.scales, kTileRows + lane, group.minimum);
    for (int k = 0; k < kGroup; ++k) put_nibble(to.codes, lane, k, group.q[k]);
    return is_finite_half(group.scale) && is_finite_half(group.minimum);
}

/// Whether the packed type keeps what is stored: of a merged matrix no number stays what the file
/// has.
bool copied_whole(const TensorView& source, PackedType packed) {
    return source.added == nullptr && packed != PackedType::F32 &&
           source.type == stored_type(packed);
}

int lanes_of(const PackedMatrix& matrix, int tile) {
    return std::min(kTileRows, matrix.rows - tile * kTileRows);
}

/// Copies a tile of blocks. Returns a row with a number that is not finite.
std::optional<std::int64_t> copy_blocks(const TensorView& source,
                                        const PackedMatrix& matrix,
                                        int tile) {
    const TypeTraits shape = traits(source.type);
    const int in_block = static_cast<int>(shape.block_elements) / kGroup;
    const int lanes = lanes_of(matrix, tile);
    const std::int64_t first_row = std::int64_t{tile} * kTileRows;
    std::optional<std::int64_t> wrong;
    std::array<const std::byte*, kTileRows> blocks = {};
    for (int lane = 0; lane < lanes; ++lane)
        blocks[static_cast<std::size_t>(lane)] = source.row(first_row + lane);
    const std::span used = std::span(blocks).first(static_cast<std::size_t>(lanes));
    std::array<StoredCodes, kTileRows> codes;
    codes.fill(empty_group(matrix.type));
    const int stored = matrix.cols / kGroup;
    for (int group = 0; group < stored; ++group) {
        stored_codes(source.type, used, group % in_block, codes);
        for (int lane = 0; lane < lanes; ++lane) {
            if (!is_finite_group(matrix.type, codes[static_cast<std::size_t>(lane)]))
                wrong = first_row + lane;
        }
        put_group(matrix, tile, group, codes);
        if (group % in_block + 1 < in_block) continue;
        for (const std::byte*& block : used) block += shape.block_bytes;
    }
    codes.fill(empty_group(matrix.type));
    for (int group = stored; group < matrix.groups(); ++group)
        put_group(matrix, tile, group, codes);
    return wrong;
}

/// Copies a tile of 16-bit numbers in units of one or two inputs, a unit of the 16 lanes side by
/// side. `finite`: whether all numbers of a unit are. Returns as copy_blocks().
template <class Unit, class Finite>
std::optional<std::int64_t> copy_units(const TensorView& source,
                                       const PackedMatrix& matrix,
                                       int tile,
                                       Finite finite) {
    constexpr std::size_t kUnits = kGroup * sizeof(std::uint16_t) / sizeof(Unit);
    const int lanes = lanes_of(matrix, tile);
    const std::int64_t first_row = std::int64_t{tile} * kTileRows;
    std::optional<std::int64_t> wrong;
    for (int group = 0; group < matrix.groups(); ++group) {
        const int inputs = std::clamp(matrix.cols - group * kGroup, 0, kGroup);
        std::array<std::array<Unit, kTileRows>, kUnits> lines = {};
        for (int lane = 0; lane < lanes && inputs > 0; ++lane) {
            std::array<Unit, kUnits> row = {};
            std::memcpy(row.data(), source.row(first_row + lane) + std::ptrdiff_t{64} * group,
                        2 * static_cast<std::size_t>(inputs));
            for (std::size_t u = 0; u < kUnits; ++u) {
                if (!finite(row[u])) wrong = first_row + lane;
                lines[u][static_cast<std::size_t>(lane)] = row[u];
            }
        }
        std::memcpy(tile_group(matrix, tile, group).codes, lines.data(), sizeof lines);
    }
    return wrong;
}

/// Of both bfloat16 in a word.
bool are_finite_bfloats(std::uint32_t pair) {
    constexpr std::uint32_t kExponents = 0x7F80'7F80U;
    const std::uint32_t exponents = pair & kExponents;
    return (exponents & 0xFFFFU) != (kExponents & 0xFFFFU) && exponents >> 16 != kExponents >> 16;
}

/// Zeros everywhere, so that an unfilled lane contributes nothing.
void clear_tile(const PackedMatrix& matrix, int tile) {
    std::byte* base = matrix.data + static_cast<std::size_t>(tile) * matrix.tile_bytes();
    std::memset(base, 0, matrix.tile_bytes());
    if (matrix.type != PackedType::Int8) return;
    for (int group = 0; group < matrix.groups(); ++group) {
        std::memset(tile_group(matrix, tile, group).codes, 128, matrix.group_bytes());
    }
}

/// Group `group` as int8: without rounding where the file's blocks allow that, else quantised from
/// its numbers `x`.
QuantisedGroup int8_group_of(const TensorView& source,
                             std::int64_t row,
                             int group,
                             const float* x) {
    const bool inside = group < source.cols / kGroup && source.added == nullptr;
    std::optional<QuantisedGroup> stored;
    if (inside && has_int8_form(source.type)) stored = stored_int8_group(source, row, group);
    return stored ? *stored : quantise_int8(x);
}

/// Packs row `row` of the source, whose numbers, padded, are `x`. Whether all that is packed is
/// finite.
bool pack_values(const TensorView& source,
                 std::int64_t row,
                 const float* x,
                 const PackedMatrix& matrix) {
    const auto tile = static_cast<int>(row / kTileRows);
    const auto lane = static_cast<int>(row % kTileRows);
    bool finite = true;
    for (int group = 0; group < matrix.groups(); ++group, x += kGroup) {
        const TileGroup to = tile_group(matrix, tile, group);
        switch (matrix.type) {
            case PackedType::F32:
                for (int k = 0; k < kGroup; ++k) {
                    std::memcpy(to.codes + (k * kTileRows + lane) * 4, x + k, 4);
                }
                break;
            case PackedType::BF16:
                for (int k = 0; k < kGroup; ++k) {
                    const std::uint16_t bits = float_to_bfloat(x[k]);
                    std::memcpy(to.codes + ((k / 2) * 32 + lane * 2 + k % 2) * 2, &bits, 2);
                }
                break;
            case PackedType::F16:
                for (int k = 0; k < kGroup; ++k) {
                    const std::uint16_t bits = float_to_half(x[k]);
                    put_half(to.codes, k * kTileRows + lane, bits);
                    finite = finite && is_finite_half(bits);
                }
                break;
            case PackedType::Int8:
                finite = put_int8_group(int8_group_of(source, row, group, x), lane, to) && finite;
                break;
            case PackedType::Q4:
                finite = put_q4_group(quantise_q4(x), lane, to) && finite;
                break;
            default:
                PACE_CHECK(false, "only keeps blocks of its own type");
                break;
        }
    }
    return finite;
}

/// A lane of a group of F32, BF16 or F16.
void get_plain(PackedType type, const TileGroup& from, int lane, std::span<float, kGroup> out) {
    for (std::size_t k = 0; k < kGroup; ++k) {
        const auto at = static_cast<std::size_t>(lane);
        std::uint16_t bits = 0;
        if (type == PackedType::F32) {
            std::memcpy(&out[k], from.codes + (k * kTileRows + at) * 4, 4);
        } else if (type == PackedType::F16) {
            std::memcpy(&bits, from.codes + (k * kTileRows + at) * 2, 2);
            out[k] = half_to_float(bits);
        } else {
            std::memcpy(&bits, from.codes + (k / 2 * 2 * kTileRows + at * 2 + k % 2) * 2, 2);
            out[k] = bfloat_to_float(bits);
        }
    }
}

/// Copies a tile of what copied_whole() says. Returns as copy_blocks().
std::optional<std::int64_t> copy_tile(const TensorView& source,
                                      const PackedMatrix& matrix,
                                      int tile) {
    if (matrix.type == PackedType::BF16)
        return copy_units<std::uint32_t>(source, matrix, tile, are_finite_bfloats);
    if (matrix.type == PackedType::F16)
        return copy_units<std::uint16_t>(source, matrix, tile, is_finite_half);
    return copy_blocks(source, matrix, tile);
}

/// Packs a tile from its numbers, row by row. Returns a row with one that is not finite.
std::optional<std::int64_t> pack_numbers(const TensorView& source,
                                         const PackedMatrix& matrix,
                                         int tile,
                                         std::span<float> values) {
    std::optional<std::int64_t> wrong;
    clear_tile(matrix, tile);
    for (int lane = 0; lane < lanes_of(matrix, tile); ++lane) {
        const std::int64_t row = std::int64_t{tile} * kTileRows + lane;
        dequantize_row(source, row, values.first(static_cast<std::size_t>(matrix.cols)));
        std::fill(values.begin() + matrix.cols, values.end(), 0.0f);
        if (!all_finite(values)) wrong = row;
        if (!pack_values(source, row, values.data(), matrix)) wrong = row;
    }
    return wrong;
}

}  // namespace

std::size_t PackedMatrix::group_bytes() const {
    switch (type) {
        case PackedType::F32:
            return 4 * kGroup * kTileRows;
        case PackedType::BF16:
        case PackedType::F16:
            return 2 * kGroup * kTileRows;
        case PackedType::Int8:
            return kGroup * kTileRows;
        case PackedType::Q4:
        case PackedType::Q4Sym:
            return kGroup * kTileRows / 2;
        default:
            break;  // packed_blocks.hpp
    }
    return 0;
}

std::size_t PackedMatrix::tile_bytes() const {
    if (is_block_type(type)) return block_tile_bytes(type, groups());
    return static_cast<std::size_t>(groups()) * (group_bytes() + scale_bytes());
}

std::size_t PackedMatrix::scale_bytes() const {
    switch (type) {
        case PackedType::F32:
        case PackedType::BF16:
        case PackedType::F16:
            return 0;
        case PackedType::Int8:
        case PackedType::Q4Sym:
            return 2 * kTileRows;
        case PackedType::Q4:
            return 4 * kTileRows;
        default:
            break;
    }
    return 0;
}

std::optional<std::int64_t> pack_tiles(const TensorView& source,
                                       const PackedMatrix& matrix,
                                       int first_tile,
                                       int last_tile,
                                       std::span<float> scratch) {
    std::optional<std::int64_t> wrong;
    PACE_CHECK(source.rows == matrix.rows && source.cols == matrix.cols,
               "shapes were checked at load");
    const auto padded = static_cast<std::size_t>(matrix.groups()) * kGroup;
    const bool exact = copied_whole(source, matrix.type);
    PACE_CHECK(exact || !is_block_type(matrix.type), "only keeps blocks of its own type");
    PACE_CHECK(!exact || matrix.cols % static_cast<int>(traits(source.type).block_elements) == 0,
               "whole blocks");
    PACE_CHECK(exact || scratch.size() >= padded, "scratch holds one padded row");
    for (int tile = first_tile; tile < last_tile; ++tile) {
        const std::optional<std::int64_t> row =
            exact ? copy_tile(source, matrix, tile)
                  : pack_numbers(source, matrix, tile, scratch.first(padded));
        if (row) wrong = row;
    }
    return wrong;
}

void unpack_row(const PackedMatrix& matrix, int row, std::span<float> out) {
    PACE_CHECK(row >= 0 && row < matrix.rows, "row of the matrix");
    PACE_CHECK(out.size() == static_cast<std::size_t>(matrix.cols), "one place per column");
    const int lane = row % kTileRows;
    std::array<float, kGroup> numbers = {};
    for (int first = 0; first < matrix.cols; first += kGroup) {
        const auto count = static_cast<std::size_t>(std::min(kGroup, matrix.cols - first));
        const int group = first / kGroup;
        if (is_plain(matrix.type)) {
            get_plain(matrix.type, tile_group(matrix, row / kTileRows, group), lane, numbers);
        } else {
            get_group(matrix, row, group, numbers);
        }
        std::copy_n(numbers.begin(), count, out.begin() + first);
    }
}

}  // namespace paceline

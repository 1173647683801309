#include "model/kernels/cpu/packed_matrix.hpp"

#include <algorithm>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/kernels/cpu/packed_blocks.hpp"
#include "model/kernels/cpu/packed_nibbles.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/gguf/gguf_groups.hpp"
#include "model/weights/quantise.hpp"

namespace paceline {
namespace {

struct Kept {
    PackedType packed;
    StoredType stored;
    std::string_view name;
};
constexpr std::array kKept = std::to_array<Kept>({
    {PackedType::F32, StoredType::F32, "f32"},
    {PackedType::BF16, StoredType::BF16, "bf16"},
    {PackedType::Int8, StoredType::Q8_0, "int8"},
    {PackedType::Q4, StoredType::Q4_1, "q4"},
    {PackedType::Q4Sym, StoredType::Q4_0, "q4"},
    {PackedType::Q5_0, StoredType::Q5_0, "q5_0"},
    {PackedType::Q5_1, StoredType::Q5_1, "q5_1"},
    {PackedType::Q2K, StoredType::Q2_K, "q2_k"},
    {PackedType::Q3K, StoredType::Q3_K, "q3_k"},
    {PackedType::Q4K, StoredType::Q4_K, "q4_k"},
    {PackedType::Q5K, StoredType::Q5_K, "q5_k"},
    {PackedType::Q6K, StoredType::Q6_K, "q6_k"},
    {PackedType::IQ4NL, StoredType::IQ4_NL, "iq4_nl"},
    {PackedType::IQ4XS, StoredType::IQ4_XS, "iq4_xs"},
    {PackedType::MXFP4, StoredType::MXFP4, "mxfp4"},
});

constexpr bool in_order() {
    for (std::size_t i = 0; i < kKept.size(); ++i) {
        if (kKept[i].packed != static_cast<PackedType>(i)) return false;
    }
    return kKept.back().packed == PackedType::MXFP4;
}
static_assert(in_order(), "a row for each type, in the order of PackedType");

const Kept& kept(PackedType type) {
    return kKept[static_cast<std::size_t>(type)];
}

/// Where the parts of one group of one tile are.
struct GroupPlace {
    std::uint8_t* quants;
    std::uint16_t* scales;  // [16] d, then [16] m for Q4
};

GroupPlace place(const PackedMatrix& matrix, int tile, int group) {
    std::byte* base = matrix.data + static_cast<std::size_t>(tile) * matrix.tile_bytes();
    const std::size_t pair_bytes = 2 * (matrix.group_bytes() + matrix.scale_bytes());
    const auto half = static_cast<std::size_t>(group % 2);
    std::byte* pair = base + static_cast<std::size_t>(group / 2) * pair_bytes;
    std::byte* quants = pair + half * matrix.group_bytes();
    std::byte* scales = pair + 2 * matrix.group_bytes() + half * matrix.scale_bytes();
    return {reinterpret_cast<std::uint8_t*>(quants), reinterpret_cast<std::uint16_t*>(scales)};
}

int int8_index(int lane, int k) {
    return (k / 4) * 64 + lane * 4 + k % 4;
}

bool put_int8_group(const QuantisedGroup& group, int lane, GroupPlace to) {
    to.scales[lane] = group.scale;
    for (int k = 0; k < kGroup; ++k)
        to.quants[int8_index(lane, k)] = static_cast<std::uint8_t>(group.q[k] + 128);
    return is_finite_half(group.scale);
}

bool put_q4_group(const QuantisedGroup& group, int lane, GroupPlace to) {
    to.scales[lane] = group.scale;
    to.scales[kTileRows + lane] = group.minimum;
    for (int k = 0; k < kGroup; ++k) put_nibble(to.quants, lane, k, group.q[k]);
    return is_finite_half(group.scale) && is_finite_half(group.minimum);
}

/// Copies one stored block of 32 whose format the packed type keeps exactly. Whether its scale and its
/// minimum are finite.
bool copy_block(const TensorView& source, const std::byte* block, int lane, GroupPlace to) {
    std::uint16_t halves[2] = {0, 0};
    const bool has_min = source.type == StoredType::Q4_1;
    const std::size_t header = has_min ? 4 : 2;
    std::memcpy(halves, block, header);
    to.scales[lane] = halves[0];
    if (has_min) to.scales[kTileRows + lane] = halves[1];
    const bool finite = is_finite_half(halves[0]) && is_finite_half(halves[1]);
    const auto* quants = reinterpret_cast<const std::uint8_t*>(block) + header;
    if (source.type == StoredType::Q8_0) {
        for (int k = 0; k < kGroup; k += 4) {
            std::uint32_t four = 0;
            std::memcpy(&four, quants + k, 4);
            four ^= 0x80808080U;  // w + 128, byte by byte
            std::memcpy(to.quants + int8_index(lane, k), &four, 4);
        }
        return finite;
    }
    // Byte i of a 4-bit block holds k = i (low) and k = i + 16 (high); here low and high are 4 apart.
    std::uint64_t low[2] = {0, 0};
    std::uint64_t high[2] = {0, 0};
    for (int half = 0; half < 2; ++half) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, quants + 8 * half, 8);
        low[half] = eight & 0x0f0f0f0f0f0f0f0fULL;
        high[half] = (eight >> 4) & 0x0f0f0f0f0f0f0f0fULL;
    }
    const std::uint64_t by_k[4] = {low[0], low[1], high[0], high[1]};  // 8 inputs each
    for (int j = 0; j < 4; ++j) {
        const auto first = static_cast<std::uint32_t>(by_k[j]);
        const auto second = static_cast<std::uint32_t>(by_k[j] >> 32);
        const std::uint32_t packed = first | (second << 4);
        std::memcpy(to.quants + 64 * j + 4 * lane, &packed, 4);
    }
    return finite;
}

/// Row `row` of the source as it is stored, into its lane. Whether all of it is finite.
bool copy_row(const TensorView& source, std::int64_t row, const PackedMatrix& matrix) {
    const auto tile = static_cast<int>(row / kTileRows);
    const auto lane = static_cast<int>(row % kTileRows);
    const std::size_t block_bytes = traits(source.type).block_bytes;
    const std::byte* block = source.row(row);
    bool finite = true;
    if (is_block_type(matrix.type)) {
        const auto elements = static_cast<int>(traits(source.type).block_elements);
        for (int b = 0; b < matrix.cols / elements; ++b, block += block_bytes)
            finite = put_block(matrix, row, b, block) && finite;
        return finite;
    }
    for (int group = 0; group < matrix.cols / kGroup; ++group, block += block_bytes)
        finite = copy_block(source, block, lane, place(matrix, tile, group)) && finite;
    return finite;
}

bool scaled(PackedType type) {
    return type != PackedType::F32 && type != PackedType::BF16;
}

/// Whether copy_row() is the way: of a merged matrix no block stays what the file has.
bool copied_whole(const TensorView& source, PackedType packed) {
    return source.added == nullptr && scaled(packed) && source.type == stored_type(packed);
}

/// Zeros everywhere, so that an unfilled lane contributes nothing.
void clear_tile(const PackedMatrix& matrix, int tile) {
    std::byte* base = matrix.data + static_cast<std::size_t>(tile) * matrix.tile_bytes();
    std::memset(base, 0, matrix.tile_bytes());
    if (matrix.type != PackedType::Int8) return;
    for (int group = 0; group < matrix.groups(); ++group) {
        std::memset(place(matrix, tile, group).quants, 128, matrix.group_bytes());
    }
}

/// The file's own integers for group `group`, or new ones made of its numbers `x`.
QuantisedGroup group_of(
    const TensorView& source, std::int64_t row, PackedType type, int group, const float* x) {
    const bool inside = group < source.cols / kGroup && source.added == nullptr;
    std::optional<QuantisedGroup> stored;
    if (inside && type == PackedType::Int8 && has_int8_form(source.type))
        stored = stored_int8_group(source, row, group);
    if (inside && type == PackedType::Q4 && has_q4_form(source.type))
        stored = stored_q4_group(source, row, group);
    if (stored) return *stored;
    return type == PackedType::Q4 ? quantise_q4(x) : quantise_int8(x);
}

/// Packs row `row` of the source, whose numbers, padded, are `x`. Whether all scales are finite.
bool pack_values(const TensorView& source,
                 std::int64_t row,
                 const float* x,
                 const PackedMatrix& matrix) {
    const auto tile = static_cast<int>(row / kTileRows);
    const auto lane = static_cast<int>(row % kTileRows);
    bool finite = true;
    for (int group = 0; group < matrix.groups(); ++group, x += kGroup) {
        const GroupPlace to = place(matrix, tile, group);
        switch (matrix.type) {
            case PackedType::F32:
                for (int k = 0; k < kGroup; ++k) {
                    std::memcpy(to.quants + (k * kTileRows + lane) * 4, x + k, 4);
                }
                break;
            case PackedType::BF16:
                for (int k = 0; k < kGroup; ++k) {
                    const std::uint16_t bits = float_to_bfloat(x[k]);
                    std::memcpy(to.quants + ((k / 2) * 32 + lane * 2 + k % 2) * 2, &bits, 2);
                }
                break;
            case PackedType::Int8:
                finite = put_int8_group(group_of(source, row, matrix.type, group, x), lane, to) &&
                         finite;
                break;
            case PackedType::Q4:
                finite =
                    put_q4_group(group_of(source, row, matrix.type, group, x), lane, to) && finite;
                break;
            default:
                PACE_CHECK(false, "only keeps blocks of its own type");
                break;
        }
    }
    return finite;
}

}  // namespace

std::string_view name(PackedType type) {
    return kept(type).name;
}

StoredType stored_type(PackedType type) {
    return kept(type).stored;
}

PackedType natural_type(StoredType stored) {
    if (stored == StoredType::F16) return PackedType::BF16;
    const auto* found = std::find_if(kKept.begin(), kKept.end(),
                                     [&](const Kept& kept) { return kept.stored == stored; });
    PACE_CHECK(found != kKept.end(), "a stored type that no packed type keeps");
    return found->packed;
}

std::size_t PackedMatrix::group_bytes() const {
    switch (type) {
        case PackedType::F32:
            return 4 * kGroup * kTileRows;
        case PackedType::BF16:
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
        clear_tile(matrix, tile);
        const int lanes = std::min(kTileRows, matrix.rows - tile * kTileRows);
        for (int lane = 0; lane < lanes; ++lane) {
            const std::int64_t row = static_cast<std::int64_t>(tile) * kTileRows + lane;
            if (exact) {
                if (!copy_row(source, row, matrix)) wrong = row;
                continue;
            }
            const std::span<float> values = scratch.first(padded);
            dequantize_row(source, row, values.first(static_cast<std::size_t>(matrix.cols)));
            std::fill(values.begin() + matrix.cols, values.end(), 0.0f);
            if (!all_finite(values)) wrong = row;
            if (!pack_values(source, row, values.data(), matrix)) wrong = row;
        }
    }
    return wrong;
}

void unpack_row(const PackedMatrix& matrix, int row, std::span<float> out) {
    PACE_CHECK(row >= 0 && row < matrix.rows, "row of the matrix");
    PACE_CHECK(out.size() == static_cast<std::size_t>(matrix.cols), "one place per column");
    const int lane = row % kTileRows;
    for (int first = 0; first < matrix.cols; first += kGroup) {
        const int count = std::min(kGroup, matrix.cols - first);
        if (is_block_type(matrix.type)) {
            get_block_group(
                matrix, row, first / kGroup,
                out.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
            continue;
        }
        const GroupPlace from = place(matrix, row / kTileRows, first / kGroup);
        float* to = out.data() + first;
        const float d = scaled(matrix.type) ? half_to_float(from.scales[lane]) : 0.0f;
        switch (matrix.type) {
            case PackedType::F32:
                for (int k = 0; k < count; ++k)
                    std::memcpy(to + k, from.quants + (k * kTileRows + lane) * 4, 4);
                break;
            case PackedType::BF16:
                for (int k = 0; k < count; ++k) {
                    std::uint16_t bits = 0;
                    std::memcpy(&bits, from.quants + ((k / 2) * 32 + lane * 2 + k % 2) * 2, 2);
                    to[k] = bfloat_to_float(bits);
                }
                break;
            case PackedType::Int8:
                for (int k = 0; k < count; ++k)
                    to[k] = d * static_cast<float>(from.quants[int8_index(lane, k)] - 128);
                break;
            case PackedType::Q4: {
                const float m = half_to_float(from.scales[kTileRows + lane]);
                for (int k = 0; k < count; ++k)
                    to[k] = d * static_cast<float>(get_nibble(from.quants, lane, k)) + m;
                break;
            }
            case PackedType::Q4Sym:
                for (int k = 0; k < count; ++k)
                    to[k] = d * static_cast<float>(get_nibble(from.quants, lane, k) - 8);
                break;
            default:
                break;  // above
        }
    }
}

}  // namespace paceline

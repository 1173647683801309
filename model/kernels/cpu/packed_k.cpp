#include "model/kernels/cpu/packed_k.hpp"

#include <cstring>

#include "ipc/base/check.hpp"
#include "model/kernels/cpu/packed_nibbles.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/gguf/gguf_blocks.hpp"
#include "model/weights/gguf/gguf_bytes.hpp"

namespace paceline {
namespace {

/// The parts of one group of one tile.
struct KPlace {
    std::uint16_t* d;
    std::uint16_t* dmin;
    std::uint8_t* quants;
    std::uint8_t* tops;
    std::uint8_t* scales;
};

KPlace place(const PackedMatrix& matrix, int tile, int group) {
    auto* block = reinterpret_cast<std::uint8_t*>(matrix.data) +
                  static_cast<std::size_t>(tile) * matrix.tile_bytes() +
                  static_cast<std::size_t>(group / kBlockGroups) * k_block_bytes(matrix.type);
    const std::size_t tops = matrix.type == PackedType::Q6K ? kTopBytes : 0;
    std::uint8_t* pair =
        block + kBlockHead +
        static_cast<std::size_t>(group % kBlockGroups / 2) * k_pair_bytes(matrix.type);
    const auto half = static_cast<std::size_t>(group % 2);
    auto* halves = reinterpret_cast<std::uint16_t*>(block);
    return {halves, halves + kTileRows, pair + half * kNibbleBytes,
            pair + 2 * kNibbleBytes + half * tops,
            pair + 2 * (kNibbleBytes + tops) + half * kScaleBytes};
}

int top_index(int lane, int k) {
    return k / 16 * 64 + lane * 4 + k % 4;
}

bool put_q4_k(const PackedMatrix& matrix, int tile, int lane, int block, const std::byte* stored) {
    for (int g = 0; g < kBlockGroups; ++g) {
        const KPlace to = place(matrix, tile, block * kBlockGroups + g);
        const SixBitScale of = six_bit_scale(stored + 4, g);
        to.scales[lane] = static_cast<std::uint8_t>(of.scale);
        to.scales[kTileRows + lane] = static_cast<std::uint8_t>(of.minimum);
        const std::byte* quants = stored + 16 + kGroup * (g / 2);
        for (int k = 0; k < kGroup; ++k)
            put_nibble(to.quants, lane, k, byte_at(quants + k) >> (4 * (g % 2)) & 15);
    }
    const KPlace head = place(matrix, tile, block * kBlockGroups);
    head.d[lane] = load_number<std::uint16_t>(stored);
    head.dmin[lane] = static_cast<std::uint16_t>(load_number<std::uint16_t>(stored + 2) ^ 0x8000U);
    return is_finite_half(head.d[lane]) && is_finite_half(head.dmin[lane]);
}

bool put_q6_k(const PackedMatrix& matrix, int tile, int lane, int block, const std::byte* stored) {
    for (int g = 0; g < kBlockGroups; ++g) {
        const KPlace to = place(matrix, tile, block * kBlockGroups + g);
        for (int h = 0; h < 2; ++h)
            to.scales[h * kTileRows + lane] = load_number<std::uint8_t>(stored + 192 + 2 * g + h);
        const int half = g / 4;
        const int part = g % 4;
        const std::byte* low = stored + 64 * half + 32 * (part % 2);
        const std::byte* high = stored + 128 + 32 * half;
        for (int k = 0; k < kGroup; ++k) {
            put_nibble(to.quants, lane, k, byte_at(low + k) >> (4 * (part / 2)) & 15);
            const int top = byte_at(high + k) >> (2 * part) & 3;
            std::uint8_t& byte = to.tops[top_index(lane, k)];
            byte = static_cast<std::uint8_t>(byte | (top << (2 * (k % 16 / 4))));
        }
    }
    const KPlace head = place(matrix, tile, block * kBlockGroups);
    head.d[lane] = load_number<std::uint16_t>(stored + 208);
    return is_finite_half(head.d[lane]);
}

}  // namespace

bool put_k_block(const PackedMatrix& matrix, std::int64_t row, int block, const std::byte* stored) {
    const auto tile = static_cast<int>(row / kTileRows);
    const auto lane = static_cast<int>(row % kTileRows);
    return matrix.type == PackedType::Q6K ? put_q6_k(matrix, tile, lane, block, stored)
                                          : put_q4_k(matrix, tile, lane, block, stored);
}

void get_k_group(const PackedMatrix& matrix, int row, int group, std::span<float> out) {
    PACE_CHECK(std::ssize(out) == kGroup, "a whole group");
    const int lane = row % kTileRows;
    const KPlace from = place(matrix, row / kTileRows, group);
    const float d = half_to_float(from.d[lane]);
    const float dmin = half_to_float(from.dmin[lane]);
    for (int k = 0; k < kGroup; ++k) {
        const int nibble = get_nibble(from.quants, lane, k);
        float& to = out[static_cast<std::size_t>(k)];
        if (matrix.type == PackedType::Q6K) {
            const int top = from.tops[top_index(lane, k)] >> (2 * (k % 16 / 4)) & 3;
            const auto scale = static_cast<std::int8_t>(from.scales[k / 16 * kTileRows + lane]);
            to = d * static_cast<float>(scale) * static_cast<float>(nibble + 16 * top - 32);
        } else {
            to = d * static_cast<float>(from.scales[lane]) * static_cast<float>(nibble) +
                 dmin * static_cast<float>(from.scales[kTileRows + lane]);
        }
    }
}

}  // namespace paceline

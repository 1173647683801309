#include "model/kernels/cpu/tile_group.hpp"

#include <cstddef>

#include "model/kernels/cpu/packed_blocks.hpp"

namespace paceline {

TileGroup tile_group(const PackedMatrix& matrix, int tile, int group) {
    auto* base = reinterpret_cast<std::uint8_t*>(matrix.data) +
                 static_cast<std::size_t>(tile) * matrix.tile_bytes();
    if (is_block_type(matrix.type)) {
        const BlockFormat format = block_format(matrix.type);
        const GroupOffsets at = group_offsets(format, group);
        // Without dmin a head has the d of two blocks.
        const int second = has_minimum(format.form) ? 0 : group / kBlockGroups % 2;
        return {reinterpret_cast<std::uint16_t*>(base + at.head) + second * kTileRows,
                base + at.scales, base + at.codes};
    }
    const std::size_t pair_bytes = 2 * (matrix.group_bytes() + matrix.scale_bytes());
    const auto half = static_cast<std::size_t>(group % 2);
    std::uint8_t* pair = base + static_cast<std::size_t>(group / 2) * pair_bytes;
    return {nullptr, pair + 2 * matrix.group_bytes() + half * matrix.scale_bytes(),
            pair + half * matrix.group_bytes()};
}

}  // namespace paceline

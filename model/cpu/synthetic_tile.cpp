#include "model/cpu/synthetic_tile.hpp"

#include <algorithm>

#include "model/weights/synthetic/synthetic_rows.hpp"

namespace paceline {
namespace {}  // namespace

SyntheticTile::SyntheticTile(const PackedMatrix& matrix,
                             std::uint64_t seed,
                             std::span<const TokenId> list)
    : matrix_{matrix}, seed_{seed}, list_{list} {
    rows_.type = stored_type(matrix.type);
    rows_.cols = random_row_columns(rows_.type, matrix.cols);
    const TypeTraits of = traits(rows_.type);
    row_bytes_ = static_cast<std::size_t>(rows_.cols) / of.block_elements * of.block_bytes;
    bytes_.resize(kTileRows * row_bytes_);
}

void SyntheticTile::pack(int tile, std::span<float> scratch) {
    const int first = tile * kTileRows;
    PackedMatrix place = matrix_;
    place.rows = std::min(kTileRows, matrix_.rows - first);
    place.cols = static_cast<int>(rows_.cols);  // whole blocks, also the last
    place.data += static_cast<std::size_t>(tile) * matrix_.tile_bytes();
    const std::span<std::byte> bytes{bytes_};
    for (int r = 0; r < place.rows; ++r) {
        const auto at = static_cast<std::size_t>(first + r);
        const auto row = list_.empty() ? static_cast<std::int64_t>(at) : list_[at];
        random_row(rows_.type, seed_, row, matrix_.cols,
                   bytes.subspan(static_cast<std::size_t>(r) * row_bytes_, row_bytes_));
    }
    rows_.rows = place.rows;
    rows_.data = bytes_.data();
    rows_.bytes = static_cast<std::size_t>(place.rows) * row_bytes_;
    (void)pack_tiles(rows_, place, 0, 1, scratch);
}

}  // namespace paceline

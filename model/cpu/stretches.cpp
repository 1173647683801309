#include "model/cpu/stretches.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace paceline {

std::vector<Stretch> stretches_of(std::span<const WeightSource> sources,
                                  std::size_t stretch_bytes,
                                  int tiles_min) {
    std::vector<Stretch> list;
    for (const WeightSource& source : sources) {
        const TensorView& tensor = *source.tensor;
        if (tensor.data == nullptr) {
            list.push_back({&source, 0, source.matrix->tiles(), {}});
            continue;
        }
        const std::int64_t unit =
            std::lcm(std::int64_t{kTileRows}, std::max<std::int64_t>(tensor.head_rows, 1));
        const auto wanted = static_cast<std::int64_t>(stretch_bytes / tensor.row_bytes());
        const std::int64_t least = (std::int64_t{tiles_min} * kTileRows + unit - 1) / unit;
        const std::int64_t rows = std::max(wanted / unit, std::max(least, std::int64_t{1})) * unit;
        for (std::int64_t first = 0; first < tensor.rows; first += rows) {
            const std::int64_t last = std::min(first + rows, tensor.rows);
            list.push_back({&source,
                            static_cast<int>(first / kTileRows),
                            static_cast<int>((last + kTileRows - 1) / kTileRows),
                            {tensor.data + static_cast<std::size_t>(first) * tensor.row_bytes(),
                             static_cast<std::size_t>(last - first) * tensor.row_bytes()}});
        }
    }
    return list;
}

}  // namespace paceline

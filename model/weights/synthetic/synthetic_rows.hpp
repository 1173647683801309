// Rows of synthetic weights on the host, as a file would store them (synthetic_numbers.hpp).
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "model/weights/tensor.hpp"

namespace paceline {

/// The seed of one tensor of a model that is synthetic from `seed`.
[[nodiscard]] std::uint64_t random_seed(std::uint64_t seed, std::string_view tensor);

/// What a plain number's unit, or a block's step, is in a row of so many columns.
[[nodiscard]] float random_scale(StoredType type, int columns);

/// Columns of a row in `type`: whole blocks. Those after the tensor's are zeros, or q = 0.
[[nodiscard]] int random_row_columns(StoredType type, int columns);

/// Writes a row; `out` has the bytes of random_row_columns(). `seed` is the tensor's.
void random_row(
    StoredType type, std::uint64_t seed, std::int64_t row, int columns, std::span<std::byte> out);

}  // namespace paceline

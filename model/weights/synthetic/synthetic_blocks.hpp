// Synthetic rows of block types (is_block_type()). Codes and integer scales are random bits. The
// float scales give the numbers the variance 1 / columns (MXFP4, whose scale is a power of two:
// within a factor of 2) and a mean near 0.
//
// Generated on the host, also for a GPU. Other types: synthetic_numbers.hpp. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/weights/tensor.hpp"

namespace paceline {

/// Writes a row of `columns` numbers to `out`, which has the bytes of whole blocks of `type`.
/// `seed` is that of the tensor.
void random_blocks(
    StoredType type, std::uint64_t seed, std::int64_t row, int columns, std::span<std::byte> out);

}  // namespace paceline

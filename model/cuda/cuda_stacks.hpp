// What rows keep of each sub-layer (Row::stack).
//
// A sub-layer that runs leaves it on the device; one that a row skips leaves what was there before,
// so the host copies that. Stacks with a mask (Row::stack_mask) are of rows that skip nothing.
//
// Functions of a batch's rows and of the device that has their hidden states.
#pragma once

#include <cstddef>
#include <span>

#include "model/cuda/cuda_rank.hpp"

namespace paceline {

/// Whether a row runs a sub-layer: within its [first, last) and not skipped.
[[nodiscard]] bool runs(const Row& row, int sublayer);
/// Whether a row keeps the state that it begins with: it skips its first sub-layer.
[[nodiscard]] bool beginnings_are_kept(std::span<const Row> rows);
/// Of `active` rows.
[[nodiscard]] bool wants_stacks(std::span<const Row> rows, std::span<const int> active);

/// Whether one of the `active` rows keeps the state after `sublayer`.
[[nodiscard]] bool are_kept(std::span<const Row> rows, std::span<const int> active, int sublayer);

// Copies in the device's stream. States have `dim` numbers.
/// Of active rows, after `sublayer`.
void keep_stacks(std::span<const Row> rows,
                 std::span<const int> active,
                 int sublayer,
                 std::size_t dim,
                 CudaRank& rank);
/// Of rows that skip their first sub-layer.
void keep_beginnings(std::span<const Row> rows, std::size_t dim, CudaRank& rank);
/// Of the other sub-layers that rows skip, once those before are there: on the host.
void keep_skipped(std::span<const Row> rows, std::size_t dim);

}  // namespace paceline

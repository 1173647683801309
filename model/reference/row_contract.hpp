// Checks the preconditions of rows.hpp and backend.hpp for the rows of one call; a violation is a
// bug of the caller and aborts. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "model/config.hpp"
#include "model/rows.hpp"

namespace paceline::reference {

struct SegmentBounds {
    int first_layer = 0;
    int last_layer = 0;
    std::int32_t kv_slots = 0;
};

/// Whether `row` runs sub-layer `sublayer`: inside its [first, last) and not masked.
[[nodiscard]] bool runs(const Row& row, int sublayer);

/// Sub-layers inside the segment, tokens inside the vocabulary, slots inside the store, the
/// row's own key last among its visible ones, no slot written twice by one sub-layer.
void check_rows(std::span<const Row> rows, const ModelConfig& config, const SegmentBounds& segment);

}  // namespace paceline::reference

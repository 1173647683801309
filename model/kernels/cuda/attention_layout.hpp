// How attention is cut, and how the host tells the device: constants and plain structs.
//
// The keys of a row are taken in the order of their positions, in splits of kAttentionSplit
// positions of kAttentionBlocks blocks each; where a split begins follows from positions alone,
// and a key's place in the arithmetic is its position within its split, wherever it is stored.
// So a row's sums are the same whichever rows are beside it.
//
// The plan of a batch is one run of 32-bit words (attention_plan.hpp writes it, attention.cu reads
// it): a header, then sections that begin where the header says. Its size follows the batch, its
// address does not: a recorded graph serves any context.
//
// Pure. C++17, for host and device.
#pragma once

#include <cstdint>

namespace paceline::cuda {

inline constexpr int kAttentionBlock = 32;   // positions: a page of the cache
inline constexpr int kAttentionBlocks = 4;   // of a split, one for each warp
inline constexpr int kAttentionSplit = 128;  // positions
inline constexpr int kAttentionTile = 8;     // queries of a tensor-core product
inline constexpr int kAttentionTilesMax = 4;
inline constexpr int kAttentionHeadDimMax = 256;
inline constexpr int kAttentionGroupMax = 16;  // query heads of a KV head
static_assert(kAttentionSplit == kAttentionBlock * kAttentionBlocks, "a split is whole blocks");

/// The first words of a plan. What ends in _at is an index into the plan's words.
struct AttentionHeader {
    std::int32_t units = 0;
    std::int32_t units_at = 0;  // AttentionUnit[units]
    std::int32_t rows = 0;
    std::int32_t rows_at = 0;  // AttentionRow[rows]
    std::int32_t merges = 0;
    std::int32_t merges_at = 0;  // rows of more than one split
    std::int32_t slots_at = 0;   // the slot lists
    std::int32_t partials = 0;   // of a row and a split, for all heads
};

/// One row. Keys that it sees in split s: min(keys - s * kAttentionSplit, kAttentionSplit).
struct AttentionRow {
    std::int32_t keys = 0;      // that it sees: its position + 1
    std::int32_t partial = -1;  // of its first split, the others follow; -1 if it has but one
};

/// Rows that follow one another and read the same keys of one split, as far as they see.
struct AttentionUnit {
    std::int32_t first_row = 0;
    std::int32_t rows = 0;
    std::int32_t split = 0;
    std::int32_t slots_at = 0;  // within the slot lists: one slot for each of `keys` positions
    std::int32_t keys = 0;      // of the split, that the furthest row sees; 1 .. kAttentionSplit
};

template <class T>
inline constexpr int kWordsOf = static_cast<int>(sizeof(T) / sizeof(std::int32_t));

[[nodiscard]] constexpr int attention_splits(int keys) {
    return (keys + kAttentionSplit - 1) / kAttentionSplit;
}

/// Tiles of queries that units of up to `rows` rows need: 1, 2 or 4, which is the most there is.
[[nodiscard]] constexpr int attention_tiles(int rows, int queries_per_kv) {
    const int queries = rows * queries_per_kv;
    return queries <= kAttentionTile ? 1 : queries <= 2 * kAttentionTile ? 2 : 4;
}
/// How many rows the units of a batch of `rows` rows are to have at most.
[[nodiscard]] constexpr int attention_unit_rows(int rows, int queries_per_kv) {
    const int most = attention_tiles(rows, queries_per_kv) * kAttentionTile / queries_per_kv;
    return rows < most ? rows : most;
}

/// Floats of a partial of one head: the weighted values, the greatest score, the sum of weights.
[[nodiscard]] constexpr int attention_partial_floats(int head_dim) {
    return (head_dim + 2 + 3) / 4 * 4;
}

/// The most words of a plan for `rows` rows that see `splits` splits, counted for each row. There
/// are never more units, partials or lists of slots than that: rows that share have fewer.
[[nodiscard]] constexpr std::int64_t attention_plan_words_max(int rows, std::int64_t splits) {
    return kWordsOf<AttentionHeader> + std::int64_t{rows} * (kWordsOf<AttentionRow> + 1) +
           splits * (kWordsOf<AttentionUnit> + kAttentionSplit);
}

}  // namespace paceline::cuda

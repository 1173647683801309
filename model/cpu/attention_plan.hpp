// AttentionPlan: which pages each row of a call reads, and how the work is cut into units.
//
// Made once per call (all layers see the same keys). Two ideas:
//  - a page whose offsets 0.. hold consecutive positions can be read in place; any other page of a
//    row (a sibling's path, a slot far from home) is gathered, offset by offset, before use;
//  - rows that follow one another with the same prefix table form a row set and read shared
//    pages together, up to eight rows at a time.
// Neither changes a bit of a result (attention.inl.hpp).
//
// Reuses its memory from call to call. Written by one thread, then read by all.
#pragma once

#include <span>
#include <vector>

#include "model/rows.hpp"

namespace paceline {

/// A page that cannot be read in place.
inline constexpr std::int32_t kGatherPage = -1;

class PageMap {
public:
    /// Finds the pages of every row. O(positions) for the first row of a prefix table, O(new
    /// positions) for the rows after it.
    void build(std::span<const Row> rows);

    /// For block b of row r: the page that holds positions 32b .. in offsets 0 .., or kGatherPage.
    [[nodiscard]] std::span<const std::int32_t> pages(int row) const {
        const Entry& entry = entries_[static_cast<std::size_t>(row)];
        return {pages_.data() + entry.offset, static_cast<std::size_t>(entry.count)};
    }

private:
    struct Entry {
        std::size_t offset;
        std::int32_t count;
    };
    std::vector<Entry> entries_;
    std::vector<std::int32_t> pages_;
};

/// Rows [first, first + count) of a sub-layer's active rows.
struct RowSet {
    int first;
    int count;
    Position last_position;  // the furthest position any of them sees
};

/// One piece of attention work: a row set, a KV head, and one split of the context or all of it.
struct AttentionUnit {
    static constexpr int kAllSplits = -1;
    int set;
    int head;
    int split;
};

/// Cuts `active` (indices into `rows`) into row sets of at most `rows_max`.
void make_row_sets(std::span<const Row> rows,
                   std::span<const int> active,
                   int rows_max,
                   std::vector<RowSet>& sets);

/// One unit per set, head and split if `by_split` (few rows: the splits are the parallelism),
/// otherwise per set and head. Long ones first, so that threads end together.
void make_units(std::span<const RowSet> sets,
                int kv_heads,
                bool by_split,
                std::vector<AttentionUnit>& units);

}  // namespace paceline

#include "model/cpu/attention_plan.hpp"

#include <algorithm>

#include "model/kernels/cpu/kernel_table.hpp"

namespace paceline {
namespace {

/// The page of block `block` of `row` if its visible offsets are home, else kGatherPage.
std::int32_t page_of_block(const Row& row, std::int32_t block) {
    const Position begin = block * kKvPageSlots;
    const Position end = std::min(begin + kKvPageSlots, row.position + 1);
    const KvSlot first = row.key_slot(begin);
    if (offset_of(first) != 0) return kGatherPage;
    for (Position p = begin + 1; p < end; ++p) {
        if (row.key_slot(p) != first + (p - begin)) return kGatherPage;
    }
    return page_of(first);
}

}  // namespace

void PageMap::build(std::span<const Row> rows) {
    entries_.clear();
    pages_.clear();
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const Row& row = rows[r];
        const std::int32_t blocks = pages_for(row.position + 1);
        const std::size_t offset = pages_.size();
        // Blocks that lie wholly in a prefix shared with the row before are what they were there.
        std::int32_t known = 0;
        if (r > 0 && rows[r - 1].prefix_slots == row.prefix_slots && row.prefix_slots != nullptr) {
            const std::int32_t shared = std::min(rows[r - 1].prefix_count, row.prefix_count);
            known = std::min({shared / kKvPageSlots, blocks, entries_[r - 1].count});
        }
        pages_.resize(offset + static_cast<std::size_t>(blocks));
        if (known > 0) {
            std::copy_n(pages_.begin() + static_cast<std::ptrdiff_t>(entries_[r - 1].offset), known,
                        pages_.begin() + static_cast<std::ptrdiff_t>(offset));
        }
        for (std::int32_t block = known; block < blocks; ++block) {
            pages_[offset + static_cast<std::size_t>(block)] = page_of_block(row, block);
        }
        entries_.push_back({offset, blocks});
    }
}

void make_row_sets(std::span<const Row> rows,
                   std::span<const int> active,
                   int rows_max,
                   std::vector<RowSet>& sets) {
    sets.clear();
    for (int i = 0; i < static_cast<int>(active.size()); ++i) {
        const Row& row = rows[static_cast<std::size_t>(active[static_cast<std::size_t>(i)])];
        if (!sets.empty() && sets.back().count < rows_max) {
            RowSet& last = sets.back();
            const Row& leader =
                rows[static_cast<std::size_t>(active[static_cast<std::size_t>(last.first)])];
            if (leader.prefix_slots == row.prefix_slots) {
                ++last.count;
                last.last_position = std::max(last.last_position, row.position);
                continue;
            }
        }
        sets.push_back({i, 1, row.position});
    }
}

void make_units(std::span<const RowSet> sets,
                int kv_heads,
                bool by_split,
                std::vector<AttentionUnit>& units) {
    units.clear();
    for (int set = static_cast<int>(sets.size()) - 1; set >= 0; --set) {
        const int splits = (sets[static_cast<std::size_t>(set)].last_position + kSplit) / kSplit;
        for (int head = 0; head < kv_heads; ++head) {
            if (!by_split) {
                units.push_back({set, head, AttentionUnit::kAllSplits});
                continue;
            }
            for (int split = 0; split < splits; ++split) units.push_back({set, head, split});
        }
    }
}

}  // namespace paceline

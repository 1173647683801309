#include "model/kernels/cuda/attention_plan.hpp"

#include <algorithm>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/kv_layout.hpp"

namespace paceline::cuda {
namespace {

static_assert(kAttentionBlock == kKvPageSlots, "a block of attention is a page of the cache");

/// One past the last position of `split` that a row sees.
Position end_in(const Row& row, int split) {
    return std::min((split + 1) * kAttentionSplit, row.position + 1);
}

bool sees(const Row& row, int split) {
    return row.position >= split * kAttentionSplit;
}

/// Whether two rows name the same slots for positions [begin, end), which both see.
bool same_keys(const Row& a, const Row& b, Position begin, Position end) {
    Position p = begin;
    // One table is equal to itself: most of a context is never looked at.
    if (a.prefix_slots == b.prefix_slots) {
        p = std::max(p, std::min(a.prefix_count, b.prefix_count));
        if (a.path_slots == b.path_slots && a.prefix_count == b.prefix_count) return true;
    }
    for (; p < end; ++p) {
        if (a.key_slot(p) != b.key_slot(p)) return false;
    }
    return true;
}

template <class T>
std::int32_t append(std::vector<std::int32_t>& words, std::span<const T> section) {
    const std::size_t at = words.size();
    words.resize(at + section.size() * kWordsOf<T>);
    if (!section.empty()) std::memcpy(words.data() + at, section.data(), section.size_bytes());
    return static_cast<std::int32_t>(at);
}

}  // namespace

void AttentionPlan::build(std::span<const Row> rows, int unit_rows) {
    PACE_CHECK(unit_rows > 0, "a unit has at least one row");
    header_ = {};
    units_.clear();
    slots_.clear();
    list_rows(rows);
    int splits = 0;
    for (const AttentionRow& row : rows_) splits = std::max(splits, attention_splits(row.keys));
    for (int split = 0; split < splits; ++split) cut_split(rows, split, unit_rows);
    assemble();
}

void AttentionPlan::list_rows(std::span<const Row> rows) {
    rows_.clear();
    merges_.clear();
    for (std::size_t r = 0; r < rows.size(); ++r) {
        PACE_CHECK(rows[r].prefix_count + rows[r].path_count == rows[r].position + 1,
                   "a row sees the keys of all positions up to its own");
        AttentionRow row{rows[r].position + 1, -1};
        const int splits = attention_splits(row.keys);
        if (splits > 1) {
            row.partial = header_.partials;
            header_.partials += splits;
            merges_.push_back(static_cast<std::int32_t>(r));
        }
        rows_.push_back(row);
    }
}

void AttentionPlan::cut_split(std::span<const Row> rows, int split, int unit_rows) {
    const Position begin = split * kAttentionSplit;
    const int count = static_cast<int>(rows.size());
    int first = 0;
    while (first < count) {
        const Row* furthest = &rows[static_cast<std::size_t>(first)];
        if (!sees(*furthest, split)) {
            ++first;
            continue;
        }
        int last = first + 1;
        for (; last < count; ++last) {
            // Whoever agrees with the furthest row agrees with all: their keys are its first ones.
            const Row& row = rows[static_cast<std::size_t>(last)];
            if (!sees(row, split)) break;
            const Position end = std::min(end_in(row, split), end_in(*furthest, split));
            if (!same_keys(*furthest, row, begin, end)) break;
            if (row.position > furthest->position) furthest = &row;
        }
        add_units(rows, first, last, split, unit_rows);
        first = last;
    }
}

/// Units of rows [first, last), which share their keys and one list of slots.
void AttentionPlan::add_units(
    std::span<const Row> rows, int first, int last, int split, int unit_rows) {
    const Position begin = split * kAttentionSplit;
    const auto slots_at = static_cast<std::int32_t>(slots_.size());
    const Row* furthest = &rows[static_cast<std::size_t>(first)];
    for (int unit_first = first; unit_first < last; unit_first += unit_rows) {
        const int unit_last = std::min(unit_first + unit_rows, last);
        Position end = begin;
        for (int r = unit_first; r < unit_last; ++r) {
            const Row& row = rows[static_cast<std::size_t>(r)];
            end = std::max(end, end_in(row, split));
            if (row.position > furthest->position) furthest = &row;
        }
        units_.push_back({unit_first, unit_last - unit_first, split, slots_at, end - begin});
    }
    for (Position p = begin; p < end_in(*furthest, split); ++p) {
        slots_.push_back(furthest->key_slot(p));
    }
}

void AttentionPlan::assemble() {
    header_.units = static_cast<std::int32_t>(units_.size());
    header_.rows = static_cast<std::int32_t>(rows_.size());
    header_.merges = static_cast<std::int32_t>(merges_.size());
    words_.assign(kWordsOf<AttentionHeader>, 0);
    header_.units_at = append(words_, std::span<const AttentionUnit>(units_));
    header_.rows_at = append(words_, std::span<const AttentionRow>(rows_));
    header_.merges_at = append(words_, std::span<const std::int32_t>(merges_));
    header_.slots_at = append(words_, std::span<const std::int32_t>(slots_));
    std::memcpy(words_.data(), &header_, sizeof header_);
}

}  // namespace paceline::cuda

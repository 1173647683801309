#include "model/cpu/forward_plan.hpp"

#include <algorithm>

namespace paceline {

void ForwardPlan::collect(std::span<const Row> rows,
                          std::span<const std::uint8_t> stale,
                          int sublayer) {
    active_.clear();
    for (int r = 0; r < static_cast<int>(rows.size()); ++r) {
        const Row& row = rows[static_cast<std::size_t>(r)];
        if (stale[static_cast<std::size_t>(r)] != 0) continue;
        if (sublayer < row.first || sublayer >= row.last) continue;
        if (row.mask != nullptr && row.mask->skips(sublayer)) continue;
        active_.push_back(r);
    }
}

void ForwardPlan::build(std::span<const Row> rows,
                        std::span<const std::uint8_t> stale,
                        float* hidden,
                        const Shape& shape) {
    first_ = rows.front().first;
    last_ = rows.front().last;
    for (const Row& row : rows) {
        first_ = std::min(first_, row.first);
        last_ = std::max(last_, row.last);
    }
    group_of_.clear();
    groups_used_ = 0;
    for (int s = first_; s < last_; ++s) {
        collect(rows, stale, s);
        std::size_t index = 0;
        while (index < groups_used_ && groups_[index].rows != active_) ++index;
        if (index == groups_used_) {
            if (groups_.size() == groups_used_) groups_.emplace_back();
            RowGroup& group = groups_[groups_used_++];
            group.rows = active_;
            group.residual.clear();
            for (int r : active_)
                group.residual.push_back(hidden + static_cast<std::ptrdiff_t>(r) * shape.dim);
            group.by_split = static_cast<int>(active_.size()) <= shape.split_rows_max;
            make_row_sets(rows, active_, shape.set_rows_max, group.sets);
            make_units(group.sets, shape.kv_heads, group.by_split, group.units);
        }
        group_of_.push_back(static_cast<int>(index));
    }
}

}  // namespace paceline

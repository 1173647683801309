// ForwardPlan: which rows are active in which sub-layer of a call.
//
// Consecutive sub-layers with the same active rows (almost always: all of them) share one Group.
// Reuses its memory from call to call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/cpu/attention_plan.hpp"
#include "model/rows.hpp"

namespace paceline {

/// Active rows and what follows from them.
struct RowGroup {
    std::vector<int> rows;         // indices into the call's rows
    std::vector<float*> residual;  // their hidden states
    std::vector<RowSet> sets;
    std::vector<AttentionUnit> units;
    bool by_split = false;
};

class ForwardPlan {
public:
    struct Shape {
        int dim;
        int kv_heads;
        int set_rows_max;    // rows of one row set
        int split_rows_max;  // up to this many rows, attention is cut by splits too
    };

    /// `hidden` is [rows, dim]. A row r with stale[r] != 0 runs nowhere, but counts in first() and
    /// last().
    void build(std::span<const Row> rows,
               std::span<const std::uint8_t> stale,
               float* hidden,
               const Shape& shape);

    [[nodiscard]] int first() const { return first_; }
    [[nodiscard]] int last() const { return last_; }
    /// Nothing when no row runs this sub-layer.
    [[nodiscard]] const RowGroup* group(int sublayer) const {
        const int index = group_of_[static_cast<std::size_t>(sublayer - first_)];
        return groups_[static_cast<std::size_t>(index)].rows.empty()
                   ? nullptr
                   : &groups_[static_cast<std::size_t>(index)];
    }

private:
    void collect(std::span<const Row> rows, std::span<const std::uint8_t> stale, int sublayer);

    int first_ = 0;
    int last_ = 0;
    std::vector<int> group_of_;
    std::vector<RowGroup> groups_;  // the first groups_used_ of them are this call's
    std::size_t groups_used_ = 0;
    std::vector<int> active_;
};

}  // namespace paceline

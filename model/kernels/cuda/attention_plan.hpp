// AttentionPlan: the rows of a batch cut into units of attention work, for the device.
//
// Made once per batch (all layers see the same keys) and copied to the device in one piece:
// words() is exactly what attention.cu reads (attention_layout.hpp). Rows that follow one another
// and name the same slots, as far as they see, share units: a chain, a chunk of prefill, the trunk
// below a tree. Siblings share the splits below their fork and have units of their own above it.
// None of this changes a bit of a result.
//
// Host logic without CUDA. Reuses its memory from batch to batch; its size is bounded by
// attention_plan_words_max(). Used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/kernels/cuda/attention_layout.hpp"
#include "model/rows.hpp"

namespace paceline::cuda {

class AttentionPlan {
public:
    /// Units have at most `unit_rows` rows (attention_unit_rows()). Row r of the plan is rows[r].
    void build(std::span<const Row> rows, int unit_rows);

    /// All of it, as the device reads it.
    [[nodiscard]] std::span<const std::int32_t> words() const { return words_; }

    [[nodiscard]] const AttentionHeader& header() const { return header_; }
    [[nodiscard]] std::span<const AttentionUnit> units() const { return units_; }
    [[nodiscard]] std::span<const AttentionRow> rows() const { return rows_; }
    /// Rows of more than one split, ascending.
    [[nodiscard]] std::span<const std::int32_t> merges() const { return merges_; }
    /// The slots of a unit's keys, in the order of their positions.
    [[nodiscard]] std::span<const std::int32_t> slots(const AttentionUnit& unit) const {
        return {slots_.data() + unit.slots_at, static_cast<std::size_t>(unit.keys)};
    }

private:
    void list_rows(std::span<const Row> rows);
    void cut_split(std::span<const Row> rows, int split, int unit_rows);
    void add_units(std::span<const Row> rows, int first, int last, int split, int unit_rows);
    void assemble();

    AttentionHeader header_;
    std::vector<AttentionUnit> units_;
    std::vector<AttentionRow> rows_;
    std::vector<std::int32_t> merges_;
    std::vector<std::int32_t> slots_;
    std::vector<std::int32_t> words_;
};

}  // namespace paceline::cuda

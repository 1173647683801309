// BatchTables: what the kernels of a batch read about its rows, in one piece that is copied at
// once.
//
//     rows | tokens | slots | row_index | positions | attention plan
//
// For batches of up to cuda::kBatchRows rows each part stands at a fixed place: a recorded graph
// finds it. Larger ones are never recorded, and lay the parts one after the other for the rows that
// they have. The first word is the number of rows, and the switch that ends a batch: products and
// kernels on rows that find 0 do nothing (attention takes its rows from the plan, but looks there
// first).
//
// Owns a pinned buffer and its copy on the device. Used by one thread.
#pragma once

#include <cstdint>
#include <span>

#include "model/kernels/cuda/attention_plan.hpp"
#include "model/kernels/cuda/gemm/gemm.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "model/rows.hpp"

namespace paceline {

/// The rows of a call that go through the same sub-layers together: indices into the call's rows.
using ActiveRows = std::span<const int>;

/// The rows that kernels are launched for: batches of 1 to 8 rows share a recording, 9 to 16, 17 to
/// 32, 33 to 64. Larger ones are launched for what they are.
[[nodiscard]] constexpr int grid_rows(int rows) {
    for (const int size : {8, 16, 32, cuda::kBatchRows}) {
        if (rows <= size) return size;
    }
    return rows;
}

/// What a batch may be at most.
struct BatchLimits {
    int rows = 0;
    std::int64_t splits = 0;  // of attention that its rows see, counted for each row
};

class BatchTables {
public:
    /// Bytes that make() takes of the device, and of pinned memory.
    static std::size_t device_bytes(const BatchLimits& limits);
    static std::size_t pinned_bytes(const BatchLimits& limits);

    /// False if there is not so much memory.
    static bool make(const BatchLimits& limits, BatchTables& to);

    /// Writes the tables of `active` rows and enqueues their copy. Units of attention have at most
    /// `unit_rows` rows. Precondition: the last copy has ended. Results of the functions below are
    /// invalid after a batch of the other kind (recorded or not).
    void send(std::span<const Row> rows, ActiveRows active, int unit_rows, cuda::Stream& stream);

    /// Makes kernels of the batch that have not begun do nothing. `urgent` is another stream.
    void stop(cuda::Stream& urgent) const;

    [[nodiscard]] const std::int32_t* rows() const { return part(0); }
    [[nodiscard]] const std::int32_t* tokens() const { return part(tokens_at_); }
    [[nodiscard]] const std::int32_t* slots() const { return part(slots_at_); }
    [[nodiscard]] const std::int32_t* row_index() const { return part(row_index_at_); }
    [[nodiscard]] const std::int32_t* positions() const { return part(positions_at_); }
    [[nodiscard]] const std::int32_t* plan() const { return part(plan_at_); }
    [[nodiscard]] const cuda::AttentionHeader& header() const { return plan_.header(); }

private:
    [[nodiscard]] const std::int32_t* part(std::size_t words) const {
        return memory_.as<std::int32_t>(4 * words);
    }
    void place(std::size_t rows);

    std::size_t recorded_rows_ = 0;  // of the largest batch that may be recorded
    std::size_t tokens_at_ = 0, slots_at_ = 0, row_index_at_ = 0;
    std::size_t positions_at_ = 0, plan_at_ = 0;
    cuda::PinnedMemory pinned_;
    cuda::PinnedMemory zero_;
    cuda::DeviceMemory memory_;
    cuda::AttentionPlan plan_;
    std::vector<Row> active_;
};

}  // namespace paceline

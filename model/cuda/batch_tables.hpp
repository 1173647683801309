// BatchTables: what the kernels of a batch read about its rows, in one piece that is copied at
// once to each device that computes.
//
//     rows | tokens | slots | row_index | positions | attention plan
//
// For batches of up to cuda::kBatchRows rows each part stands at a fixed place: a recorded graph
// finds it. Larger ones are never recorded, and lay the parts one after the other for the rows that
// they have. The first word is the number of rows, and the switch that ends a batch: products and
// kernels on rows that find 0 do nothing (attention takes its rows from the plan, but looks there
// first).
//
// Owns a pinned buffer and its copies on the devices. Used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/kernels/cuda/attention_plan.hpp"
#include "model/kernels/cuda/gemm/gemm.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "model/rows.hpp"

namespace paceline {

/// The rows of a call that go through the same sub-layers together: indices into the call's rows.
using ActiveRows = std::span<const int>;

/// Whether a row's token is embedded; else its hidden state is given.
[[nodiscard]] constexpr bool begins_with_token(const Row& row) {
    return row.first == 0 && !row.given;
}

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

/// Where the tables are on a device.
struct TablePlaces {
    const std::int32_t* rows = nullptr;
    const std::int32_t* tokens = nullptr;
    const std::int32_t* slots = nullptr;
    const std::int32_t* row_index = nullptr;
    const std::int32_t* positions = nullptr;
    const std::int32_t* plan = nullptr;
};

class BatchTables {
public:
    /// Bytes that make() and add_device() take of a device each, and make() of pinned memory.
    static std::size_t device_bytes(const BatchLimits& limits);
    static std::size_t pinned_bytes(const BatchLimits& limits);

    /// For no device yet. False if there is not so much pinned memory.
    static bool make(const BatchLimits& limits, BatchTables& to);
    /// The calling thread's device gets them too: device 0, 1, .. of the functions below. False if
    /// it has not so much memory.
    [[nodiscard]] bool add_device(const BatchLimits& limits);

    /// Writes the tables of `active` rows. Units of attention have at most `unit_rows` rows.
    /// Precondition: the last copies have ended.
    void write(std::span<const Row> rows, ActiveRows active, int unit_rows);
    /// Enqueues their copy to a device.
    void send(std::size_t device, cuda::Stream& stream) const;

    /// Makes kernels of the batch that have not begun do nothing there. `urgent` is another stream.
    void stop(std::size_t device, cuda::Stream& urgent) const;

    /// Invalid after a batch of the other kind (recorded or not).
    [[nodiscard]] TablePlaces on(std::size_t device) const;
    [[nodiscard]] const cuda::AttentionHeader& header() const { return plan_.header(); }

private:
    void place(std::size_t rows);

    std::size_t recorded_rows_ = 0;  // of the largest batch that may be recorded
    std::size_t tokens_at_ = 0, slots_at_ = 0, row_index_at_ = 0;
    std::size_t positions_at_ = 0, plan_at_ = 0;
    cuda::PinnedMemory pinned_;
    cuda::PinnedMemory zero_;
    std::size_t bytes_now_ = 0;
    std::vector<cuda::DeviceMemory> memory_;  // of each device
    cuda::AttentionPlan plan_;
    std::vector<Row> active_;
};

}  // namespace paceline

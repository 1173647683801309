// WaveTables: what the kernels of a wave read about its rows, in one piece that is copied at once.
//
//     rows | tokens | slots | row_index | cosines | sines | attention plan
//
// Each part stands at a fixed place, for any wave up to the limits: a recorded graph finds it. The
// first word is the number of rows, and the switch that ends a wave: products and kernels on rows
// that find 0 do nothing (attention takes its rows from the plan, and runs).
//
// Owns a pinned buffer and its copy on the device. Used by one thread.
#pragma once

#include <cstdint>
#include <span>

#include "model/kernels/cuda/attention_plan.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "model/rope_table.hpp"
#include "model/rows.hpp"

namespace paceline {

/// The rows of a call that go through the same sub-layers together: indices into the call's rows.
using ActiveRows = std::span<const int>;

class WaveTables {
public:
    /// Bytes on the device for waves of `rows_max` rows that see `context` keys.
    static std::size_t device_bytes(int rows_max, int context, int pairs);

    /// False if there is not so much memory.
    static bool make(int rows_max, int context, const RopeTable& rope, WaveTables& to);

    /// Writes the tables of `active` rows and puts their copy into the stream. Units of attention
    /// have at most `unit_rows` rows. Not before the copy before it is done.
    void send(std::span<const Row> rows, ActiveRows active, int unit_rows, cuda::Stream& stream);

    /// Makes kernels of the wave that have not begun do nothing. `urgent` is another stream.
    void stop(cuda::Stream& urgent) const;

    [[nodiscard]] const std::int32_t* rows() const { return part(0); }
    [[nodiscard]] const std::int32_t* tokens() const { return part(tokens_at_); }
    [[nodiscard]] const std::int32_t* slots() const { return part(slots_at_); }
    [[nodiscard]] const std::int32_t* row_index() const { return part(row_index_at_); }
    [[nodiscard]] const float* cosines() const { return memory_.as<float>(4 * cosines_at_); }
    [[nodiscard]] const float* sines() const { return memory_.as<float>(4 * sines_at_); }
    [[nodiscard]] const std::int32_t* plan() const { return part(plan_at_); }
    [[nodiscard]] const cuda::AttentionHeader& header() const { return plan_.header(); }

private:
    [[nodiscard]] const std::int32_t* part(std::size_t words) const {
        return memory_.as<std::int32_t>(4 * words);
    }
    void place(int rows_max, int pairs);

    const RopeTable* rope_ = nullptr;
    std::size_t tokens_at_ = 0, slots_at_ = 0, row_index_at_ = 0;
    std::size_t cosines_at_ = 0, sines_at_ = 0, plan_at_ = 0;
    cuda::PinnedMemory pinned_;
    cuda::PinnedMemory zero_;
    cuda::DeviceMemory memory_;
    cuda::AttentionPlan plan_;
    std::vector<Row> active_;
};

}  // namespace paceline

// What the parts of Forward share (forward.cpp, forward_attention.cpp): the threads' scratch
// memory, how work is divided, and how rows are packed. For these two files only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/cpu/forward.hpp"

namespace paceline {

/// The kind of activations that `matrix` is multiplied with, as a bit.
inline unsigned type_bit(const PackedMatrix& matrix) {
    return 1U << static_cast<unsigned>(activation_for(matrix.type));
}

/// Where part `part` of `parts` equal parts of `total` begins.
inline int share(int total, int part, int parts) {
    return static_cast<int>(static_cast<std::int64_t>(total) * part / parts);
}

struct Forward::Scratch {
    Scratch(const ModelConfig& config, int cols_max, std::size_t half_page_bytes)
        : row(static_cast<std::size_t>(cols_max)),
          scores(static_cast<std::size_t>(kAttentionQueriesMax) * kSplit),
          gathered(2 * static_cast<std::size_t>(kSplit / kKvPageSlots) * half_page_bytes),
          split_parts(static_cast<std::size_t>(kAttentionQueriesMax) *
                      static_cast<std::size_t>(config.head_dim + 2)),
          running(split_parts.size()) {}

    AlignedArray<float> row;              // one row between producing and packing it
    AlignedArray<float> scores;           // [queries][kSplit]
    AlignedArray<std::uint8_t> gathered;  // [pages of a split] keys, then values
    AlignedArray<float> split_parts;      // [queries][head_dim + 2]
    AlignedArray<float> running;          // [queries][head_dim + 2]
    ActivationSet own;                    // few rows: packed by every thread for itself
};

/// Packs `rows` rows in every rounding of `types`; produce(row, columns, out) computes columns of
/// a row into out, whose place 0 is column 0. Threads never write into the same cache line:
///     up to kPrivateRowsMax rows     every thread packs all for itself: cheaper than a barrier
///     fewer than a panel per thread  each thread packs its columns of all rows
///     more                           each thread packs its panels
/// The caller has passed a barrier since the rows packed before were last read.
template <class Produce>
PackedInputs Forward::pack_rows(int thread, int rows, int cols, unsigned types, Produce produce) {
    Scratch& scratch = *scratch_[static_cast<std::size_t>(thread)];
    const bool alone = rows <= kPrivateRowsMax;
    const int threads = team_.size();
    PackedInputs inputs;
    for (unsigned type = 0; type < 3; ++type) {
        if ((types & (1U << type)) == 0) continue;
        ActivationSet& set = alone ? scratch.own : shared_;
        inputs.by_type[type] =
            set.by_type[type].shaped(static_cast<ActivationType>(type), rows, cols);
    }
    Columns columns{0, cols};
    int first = 0;
    int last = rows;
    if (!alone && rows < kPanelRows * threads) {
        const int pairs = (cols + kPair - 1) / kPair;
        columns = {share(pairs, thread, threads) * kPair,
                   std::min(cols, share(pairs, thread + 1, threads) * kPair)};
    } else if (!alone) {
        const int panels = (rows + kPanelRows - 1) / kPanelRows;
        first = share(panels, thread, threads) * kPanelRows;
        last = std::min(rows, share(panels, thread + 1, threads) * kPanelRows);
    }
    for (int r = first; r < last && columns.first < columns.last; ++r) {
        produce(r, columns, scratch.row.data());
        for (unsigned type = 0; type < 3; ++type) {
            if ((types & (1U << type)) == 0) continue;
            kernels_.pack_row(scratch.row.data(), columns, inputs.by_type[type], r);
        }
    }
    if (!alone) team_.barrier();
    return inputs;
}

}  // namespace paceline

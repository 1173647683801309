// What the parts of Forward share (forward.cpp, forward_attention.cpp): the threads' scratch
// memory, how work is divided, and how rows are packed. For these two files only.
#pragma once

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

/// Packs `rows` rows that produce(thread, row, out) computes, in every rounding of `types`. With
/// few rows every thread packs all of them for itself, which is cheaper than a barrier.
/// The caller has passed a barrier since the rows packed before were last read.
template <class Produce>
PackedInputs Forward::pack_rows(int thread, int rows, int cols, unsigned types, Produce produce) {
    Scratch& scratch = *scratch_[static_cast<std::size_t>(thread)];
    const bool alone = rows <= kPrivateRowsMax;
    PackedInputs inputs;
    for (unsigned type = 0; type < 3; ++type) {
        if ((types & (1U << type)) == 0) continue;
        ActivationSet& set = alone ? scratch.own : shared_;
        inputs.by_type[type] =
            set.by_type[type].shaped(static_cast<ActivationType>(type), rows, cols);
    }
    const int first = alone ? 0 : share(rows, thread, team_.size());
    const int last = alone ? rows : share(rows, thread + 1, team_.size());
    for (int r = first; r < last; ++r) {
        produce(r, scratch.row.data());
        for (unsigned type = 0; type < 3; ++type) {
            if ((types & (1U << type)) != 0) {
                kernels_.pack_row(scratch.row.data(), cols, inputs.by_type[type], r);
            }
        }
    }
    if (!alone) team_.barrier();
    return inputs;
}

}  // namespace paceline

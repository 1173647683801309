// What rows keep of each sub-layer (Row::stack).
//
// A sub-layer that runs leaves it on the device; one that a row skips leaves what was there before,
// so the host copies that.
#include <algorithm>

#include "model/cuda/cuda_forward.hpp"

namespace paceline {
namespace {

/// Whether a stack has the state that its row begins with: its first sub-layer is skipped.
bool keeps_beginning(const Row& row) {
    return row.stack != nullptr && row.first < row.last && !runs(row, row.first);
}

}  // namespace

bool runs(const Row& row, int sublayer) {
    return row.first <= sublayer && sublayer < row.last &&
           (row.mask == nullptr || !row.mask->skips(sublayer));
}

bool CudaForward::beginnings_are_kept(std::span<const Row> rows) {
    return std::any_of(rows.begin(), rows.end(), keeps_beginning);
}

/// One sub-layer at a time, with what rows want to keep of each after it.
void CudaForward::run_and_keep(std::span<const Row> rows,
                               const Stretch& stretch,
                               bool embeds,
                               const CancelToken* cancel) {
    join();  // the tables are there
    for (int sublayer = stretch.first; sublayer < stretch.last; ++sublayer) {
        if (cancel != nullptr && cancel->cancelled()) return;
        if (!skipped_.skips(sublayer))
            launch_stretch({sublayer, sublayer + 1, stretch.rows},
                           embeds && sublayer == stretch.first);
        keep_stacks(rows, stretch, sublayer);
    }
}

bool CudaForward::wants_stacks(std::span<const Row> rows, const Stretch& stretch) const {
    return std::any_of(stretch.rows.begin(), stretch.rows.end(),
                       [&](int r) { return rows[static_cast<std::size_t>(r)].stack != nullptr; });
}

void CudaForward::keep_stacks(std::span<const Row> rows, const Stretch& stretch, int sublayer) {
    const auto dim = static_cast<std::size_t>(config_.dim);
    for (const int r : stretch.rows) {
        const Row& row = rows[static_cast<std::size_t>(r)];
        if (row.stack == nullptr) continue;
        stream_.to_host(row.stack + static_cast<std::size_t>(sublayer - row.first) * dim,
                        at_.hidden + static_cast<std::size_t>(r) * dim, dim * sizeof(float));
    }
}

/// Of rows that skip their first sub-layer.
void CudaForward::keep_beginnings(std::span<const Row> rows) {
    const auto dim = static_cast<std::size_t>(config_.dim);
    for (std::size_t r = 0; r < rows.size(); ++r) {
        if (keeps_beginning(rows[r]))
            stream_.to_host(rows[r].stack, at_.hidden + r * dim, dim * sizeof(float));
    }
}

/// Of the other sub-layers that rows skip, once those before are there.
void CudaForward::keep_skipped(std::span<const Row> rows) const {
    const auto dim = static_cast<std::size_t>(config_.dim);
    for (const Row& row : rows) {
        for (int s = row.first + 1; row.stack != nullptr && s < row.last; ++s) {
            float* at = row.stack + static_cast<std::size_t>(s - row.first) * dim;
            if (!runs(row, s)) std::copy(at - dim, at, at);
        }
    }
}

}  // namespace paceline

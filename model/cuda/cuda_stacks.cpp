#include "model/cuda/cuda_stacks.hpp"

#include <algorithm>

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

bool beginnings_are_kept(std::span<const Row> rows) {
    return std::any_of(rows.begin(), rows.end(), keeps_beginning);
}

bool wants_stacks(std::span<const Row> rows, std::span<const int> active) {
    return std::any_of(active.begin(), active.end(),
                       [&](int r) { return rows[static_cast<std::size_t>(r)].stack != nullptr; });
}

void keep_stacks(std::span<const Row> rows,
                 std::span<const int> active,
                 int sublayer,
                 std::size_t dim,
                 CudaRank& rank) {
    for (const int r : active) {
        const Row& row = rows[static_cast<std::size_t>(r)];
        if (row.stack == nullptr) continue;
        rank.stream.to_host(row.stack + static_cast<std::size_t>(sublayer - row.first) * dim,
                            rank.at.hidden + static_cast<std::size_t>(r) * dim,
                            dim * sizeof(float));
    }
}

void keep_beginnings(std::span<const Row> rows, std::size_t dim, CudaRank& rank) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
        if (keeps_beginning(rows[r]))
            rank.stream.to_host(rows[r].stack, rank.at.hidden + r * dim, dim * sizeof(float));
    }
}

void keep_skipped(std::span<const Row> rows, std::size_t dim) {
    for (const Row& row : rows) {
        for (int s = row.first + 1; row.stack != nullptr && s < row.last; ++s) {
            float* at = row.stack + static_cast<std::size_t>(s - row.first) * dim;
            if (!runs(row, s)) std::copy(at - dim, at, at);
        }
    }
}

}  // namespace paceline

#include "model/cuda/cuda_stacks.hpp"

#include <algorithm>

namespace paceline {
namespace {

/// Whether a stack has the state that its row begins with: its first sub-layer is skipped.
bool keeps_beginning(const Row& row) {
    return row.stack_place(row.first).has_value() && !runs(row, row.first);
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

bool are_kept(std::span<const Row> rows, std::span<const int> active, int sublayer) {
    return std::any_of(active.begin(), active.end(), [&](int r) {
        return rows[static_cast<std::size_t>(r)].stack_place(sublayer).has_value();
    });
}

void keep_stacks(std::span<const Row> rows,
                 std::span<const int> active,
                 int sublayer,
                 std::size_t dim,
                 CudaRank& rank) {
    for (const int r : active) {
        const Row& row = rows[static_cast<std::size_t>(r)];
        const std::optional<std::size_t> place = row.stack_place(sublayer);
        if (!place) continue;
        rank.stream.to_host(row.stack + *place * dim,
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
        if (row.stack_mask != nullptr) continue;  // of a row that skips nothing
        for (int s = row.first + 1; row.stack != nullptr && s < row.last; ++s) {
            float* at = row.stack + static_cast<std::size_t>(s - row.first) * dim;
            if (!runs(row, s)) std::copy(at - dim, at, at);
        }
    }
}

}  // namespace paceline

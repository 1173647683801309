#include "model/cuda/cuda_eagle.hpp"

#include <algorithm>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/kernels/cuda/features.hpp"

namespace paceline {
namespace {

std::size_t to_size(int count) {
    return static_cast<std::size_t>(count);
}

}  // namespace

// ---- Tables: before[rows], kept[rows], how many are put, their slots[rows]. On the host then the
// ---- states that are put.

int CudaEagle::input_width(const EagleSpec& spec, int dim) {
    const int joined = spec.join.empty() ? 0 : static_cast<int>(spec.states()) * dim;
    return cuda::padded_inputs(std::max(2 * dim, joined));
}

std::size_t CudaEagle::table_words(int rows) {
    return 3 * to_size(rows) + 1;
}

std::uint64_t CudaEagle::staging_bytes(const EagleSpec& spec, int dim, int rows) {
    return 4 * (table_words(rows) + to_size(rows) * spec.states() * to_size(dim));
}

CudaEagle::CudaEagle(const EagleSpec& spec,
                     const ModelConfig& config,
                     const CudaGroup& group,
                     const CudaLaunches& launches,
                     int rows_max)
    : config_{config},
      group_{group},
      launches_{launches},
      rows_max_{to_size(rows_max)},
      width_{spec.states() * to_size(config.dim)},
      joins_{!spec.join.empty()} {}

bool CudaEagle::make(const EagleSpec& spec) {
    return cuda::PinnedMemory::allocate(
        staging_bytes(spec, config_.dim, static_cast<int>(rows_max_)), pinned_);
}

// ---- The target's features

void CudaEagle::put(std::span<const std::int32_t> slots, std::span<const float> states) {
    PACE_CHECK(states.size() == slots.size() * width_, "states of each slot");
    for (std::size_t first = 0; first < slots.size(); first += rows_max_) {
        const std::size_t count = std::min(rows_max_, slots.size() - first);
        group_.finish();  // the last copies from pinned memory
        put_batch(slots.subspan(first, count), states.subspan(first * width_, count * width_));
    }
}

/// States that are joined are inputs of J; others are features as they are. Both come by way of
/// the hidden states of a batch, of which there is none now.
void CudaEagle::put_batch(std::span<const std::int32_t> slots, std::span<const float> states) {
    std::int32_t* words = table() + 2 * rows_max_;  // of CudaWorkspace::steps too
    words[0] = static_cast<std::int32_t>(slots.size());
    std::copy(slots.begin(), slots.end(), words + 1);
    std::byte* from = pinned_.data() + 4 * table_words(static_cast<int>(rows_max_));
    std::memcpy(from, states.data(), states.size_bytes());
    const int rows = grid_rows(static_cast<int>(slots.size()));
    group_.on_each([&](CudaRank& rank) {
        std::int32_t* put = rank.at.steps + 2 * rows_max_;
        rank.stream.to_device(put, words, 4 * (1 + slots.size()));
        rank.stream.to_device(joins_ ? rank.at.states : rank.at.hidden, from, states.size_bytes());
        if (joins_) join(rank, put, rows);
        keep_rows(rank, put + 1, put, rows);
    });
}

/// hidden = J states.
void CudaEagle::join(CudaRank& rank, const std::int32_t* rows, int grid_rows) {
    const cuda::DeviceMatrix& matrix = rank.weights->join();
    const int width = static_cast<int>(width_);
    cuda::launch_side_by_side(rank.stream,
                              {.left = rank.at.states,
                               .left_width = width,
                               .rows = rows,
                               .x = rank.at.fused,
                               .stride = cuda::padded_inputs(width),
                               .wide = cuda::takes_floats(matrix)},
                              grid_rows);
    multiply(rank, matrix, rows, grid_rows);
}

void CudaEagle::read(std::int32_t slot, std::span<float> to) {
    const auto dim = to_size(config_.dim);
    PACE_CHECK(to.size() == dim, "a feature's numbers");
    CudaRank& first = group_.first();
    group_.finish();
    std::byte* at = pinned_.data() + 4 * table_words(static_cast<int>(rows_max_));
    first.stream.to_host(at, first.at.features + static_cast<std::size_t>(slot) * dim,
                         dim * sizeof(float));
    group_.finish_joined();
    std::memcpy(to.data(), at, dim * sizeof(float));
}

// ---- A step

void CudaEagle::send(std::span<const std::int32_t> before, std::span<const std::int32_t> kept) {
    PACE_CHECK(before.size() <= rows_max_ && kept.size() == before.size(), "rows of one batch");
    std::copy(before.begin(), before.end(), table());
    std::copy(kept.begin(), kept.end(), table() + rows_max_);
    for (const std::unique_ptr<CudaRank>& rank : group_.ranks())
        rank->stream.to_device(rank->at.steps, table(), 2 * rows_max_ * sizeof(std::int32_t));
}

void CudaEagle::fuse() {
    const int rows = launches_.now().rows;
    group_.on_each([&](CudaRank& rank) {
        const cuda::DeviceMatrix& matrix = rank.weights->fuse();
        const std::int32_t* count = launches_.rows(rank);
        cuda::launch_side_by_side(rank.stream,
                                  {.left = rank.at.hidden,
                                   .left_width = config_.dim,
                                   .right = rank.at.features,
                                   .right_width = config_.dim,
                                   .places = rank.at.steps,
                                   .rows = count,
                                   .x = rank.at.fused,
                                   .stride = cuda::padded_inputs(2 * config_.dim),
                                   .wide = cuda::takes_floats(matrix)},
                                  rows);
        multiply(rank, matrix, count, rows);
    });
}

void CudaEagle::keep() {
    group_.on_each([&](CudaRank& rank) {
        keep_rows(rank, rank.at.steps + rows_max_, launches_.rows(rank), launches_.now().rows);
    });
}

/// The device's columns of the hidden states, from `fused`.
void CudaEagle::multiply(CudaRank& rank,
                         const cuda::DeviceMatrix& matrix,
                         const std::int32_t* rows,
                         int grid_rows) {
    if (matrix.outputs == 0) return;
    cuda::GemmArgs args =
        launches_.product(rank, matrix, rank.at.fused, cuda::padded_inputs(matrix.inputs), false);
    args.rows = rows;
    args.finish.out = rank.at.hidden + rank.weights->columns().first;
    args.finish.out_stride = config_.dim;
    cuda::launch_gemm(rank.stream, args,
                      {grid_rows, rank.info.processors, cuda::has_wgmma(rank.info)});
}

/// The device's columns of the hidden states, to the features of all.
void CudaEagle::keep_rows(CudaRank& rank,
                          const std::int32_t* places,
                          const std::int32_t* rows,
                          int grid_rows) {
    const CudaShare& columns = rank.weights->columns();
    if (columns.count == 0) return;
    cuda::PutRowsArgs args{.from = rank.at.hidden + columns.first,
                           .places = places,
                           .rows = rows,
                           .stride = config_.dim,
                           .columns = columns.count,
                           .to = rank.at.features + columns.first};
    group_.on_others(rank, &CudaWorkspace::features, [&](float* features) {
        args.other_to[args.others++] = features + columns.first;
    });
    cuda::launch_put_rows(rank.stream, args, grid_rows);
}

}  // namespace paceline

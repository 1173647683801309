// Kernels of features (features.hpp). They move a row's few kilobytes each: simple ones.
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/features.hpp"
#include "model/kernels/cuda/gemm/gemm_finish.cuh"
#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/row_count.cuh"

namespace paceline::cuda {
namespace {

constexpr int kThreads = 128;

PACE_DEVICE std::size_t begin_of(int row, int stride) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(stride);
}

PACE_KERNEL void side_by_side(SideBySideArgs args) {
    wait_for_previous();
    let_next_start();
    const int row = block_x();
    if (row >= rows_of(args.rows)) return;
    const float* left = args.left + begin_of(row, args.left_width);
    const int place = args.right_width > 0 ? args.places[row] : -1;
    const float* right = place < 0 ? nullptr : args.right + begin_of(place, args.right_width);
    NextInput next;
    next.x = args.x;
    next.stride = args.stride;
    next.wide = args.wide;
    for (int column = thread_index(); column < args.stride; column += block_size()) {
        const int of_right = column - args.left_width;
        float value = 0.0f;
        if (of_right < 0) {
            value = left[column];
        } else if (right != nullptr && of_right < args.right_width) {
            value = right[of_right];
        }
        put_input(next, row, column, value);
    }
}

PACE_KERNEL void put_rows(PutRowsArgs args) {
    wait_for_previous();
    let_next_start();
    const int row = block_x();
    if (row >= rows_of(args.rows)) return;
    const int place = args.places[row];
    if (place < 0) return;
    const float* from = args.from + begin_of(row, args.stride);
    for (int column = thread_index(); column < args.columns; column += block_size()) {
        const float value = from[column];
        const std::size_t at = begin_of(place, args.stride) + static_cast<std::size_t>(column);
        args.to[at] = value;
        put_others(args.other_to, args.others, [&](float* to) { to[at] = value; });
    }
}

LaunchShape one_block_a_row(int rows_max) {
    LaunchShape shape;
    shape.blocks_x = rows_max;
    shape.threads = kThreads;
    shape.overlaps_previous = true;
    return shape;
}

}  // namespace

void launch_side_by_side(Stream& stream, const SideBySideArgs& args, int rows_max) {
    launch(stream, one_block_a_row(rows_max), side_by_side, args);
}

void launch_put_rows(Stream& stream, const PutRowsArgs& args, int rows_max) {
    launch(stream, one_block_a_row(rows_max), put_rows, args);
}

}  // namespace paceline::cuda

// The product kernel: a block computes one tile of 16 outputs for all rows of the wave.
//
//     warp s    slice s of the inputs: weights from memory into registers, four steps ahead;
//               rows from the cache; tensor-core products into sums[row tile][4]
//     block     slices added in ascending order in shared memory, then Finish
//
// Ladder: (1) this one. Next, where they can be measured: two or four tiles a block for matrices with
// many outputs, whose rows then come through the caches half or a quarter as often; tiles through
// shared memory for waves of more than 64 rows, in the same order of sums; a persistent kernel.
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm.hpp"
#include "model/kernels/cuda/gemm_finish.cuh"
#include "model/kernels/cuda/gemm_steps.cuh"
#include "model/kernels/cuda/launch.cuh"

namespace paceline::cuda {
namespace {

constexpr int kAhead = 4;  // steps whose weights are on their way
// Floats between two rows of a tile in shared memory: not 16, or four lanes would meet in a bank.
constexpr int kRowFloats = 20;

constexpr std::size_t shared_bytes(int slices, int row_tiles) {
    const int rows = row_tiles * kTileRows;
    return static_cast<std::size_t>(slices * rows * kRowFloats + rows) * sizeof(float);
}

struct Slice {
    int first;
    int last;
};
PACE_DEVICE Slice slice_of(int steps, int slice, int slices) {
    return {steps * slice / slices, steps * (slice + 1) / slices};
}

template <WeightType kType, int kRowTiles>
PACE_DEVICE int multiply_slice(const GemmArgs& args,
                               int tile,
                               Slice slice,
                               float (&sums)[kRowTiles][4]) {
    Step<kType> ring[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
        if (slice.first + i < slice.last) ring[i].load(args.weights, tile, slice.first + i);
    }
    // Weights are nobody's output; rows are the kernel's before.
    wait_for_previous();
    // Another stream may be setting it to 0: all lanes of a warp take what the first one saw.
    const int rows = shuffle(*args.rows, 0);
    LaneRows<kRowTiles> lane_rows;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
        const int row = n * kTileRows + lane() / 4;
        lane_rows.at[n] =
            row < rows ? static_cast<const std::uint16_t*>(args.x) +
                             static_cast<std::size_t>(row) * static_cast<std::size_t>(args.x_stride)
                       : nullptr;
    }
    // A wave that was stopped has no rows: nobody waits for its weights any more.
    const int last = rows == 0 ? slice.first : slice.last;
    for (int step = slice.first; step < last; step += kAhead) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            if (step + i >= last) break;
            if constexpr (kType == WeightType::F32) {
                ring[i].multiply(static_cast<const float*>(args.x), args.x_stride, rows, step + i,
                                 sums);
            } else {
                ring[i].multiply(lane_rows, step + i, sums);
            }
            if (step + i + kAhead < last) ring[i].load(args.weights, tile, step + i + kAhead);
        }
    }
    return rows;
}

template <WeightType kType, int kRowTiles>
PACE_KERNEL void gemm(GemmArgs args) {
    constexpr int kRows = kRowTiles * kTileRows;
    const int slices = block_size() / 32;
    const int tile = block_x();
    float* parts = shared_memory<float>(0);  // [slices][kRows][kRowFloats]
    float* factors = parts + slices * kRows * kRowFloats;

    float sums[kRowTiles][4] = {};
    const Slice slice = slice_of(steps_of(kType, args.weights.inputs), warp(), slices);
    const int rows = multiply_slice<kType, kRowTiles>(args, tile, slice, sums);
    let_next_start();

    float* part = parts + warp() * kRows * kRowFloats;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = n * kTileRows + 2 * (lane() % 4) + i % 2;
            part[row * kRowFloats + lane() / 4 + i / 2 * 8] = sums[n][i];
        }
    }
    for (int row = warp(); row < rows; row += slices) {
        const float factor = norm_factor(args.finish.norm, row);
        if (lane() == 0) factors[row] = factor;
    }
    sync_block();

    const int o = thread_index() % kTileOutputs;
    for (int row = thread_index() / kTileOutputs; row < (rows + 1) / 2 * 2;
         row += block_size() / kTileOutputs) {
        const bool there = row < rows;
        float y = parts[row * kRowFloats + o];
        for (int s = 1; s < slices; ++s) y += parts[(s * kRows + row) * kRowFloats + o];
        finish_output(args.finish, tile, o, row, there ? y * factors[row] : 0.0f,
                      args.weights.outputs, there);
    }
}

template <WeightType kType, int kRowTiles>
void launch(Stream& stream, const GemmArgs& args) {
    LaunchShape shape;
    const int slices = slices_of(steps_of(kType, args.weights.inputs));
    shape.blocks_x = args.weights.tiles();
    shape.threads = 32 * slices;
    shape.shared_bytes = shared_bytes(slices, kRowTiles);
    shape.overlaps_previous = true;
    paceline::cuda::launch(stream, shape, gemm<kType, kRowTiles>, args);
}

template <WeightType kType>
void launch_rows(Stream& stream, const GemmArgs& args, int rows_max) {
    if (rows_max <= 8) return launch<kType, 1>(stream, args);
    if (rows_max <= 16) return launch<kType, 2>(stream, args);
    if (rows_max <= 32) return launch<kType, 4>(stream, args);
    return launch<kType, 8>(stream, args);
}

}  // namespace

void launch_gemm(Stream& stream, const GemmArgs& args, int rows_max) {
    switch (args.weights.type) {
        case WeightType::F32:
            return launch_rows<WeightType::F32>(stream, args, rows_max);
        case WeightType::BF16:
            return launch_rows<WeightType::BF16>(stream, args, rows_max);
        case WeightType::Int8:
            return launch_rows<WeightType::Int8>(stream, args, rows_max);
        case WeightType::Q4:
            return launch_rows<WeightType::Q4>(stream, args, rows_max);
    }
}

}  // namespace paceline::cuda

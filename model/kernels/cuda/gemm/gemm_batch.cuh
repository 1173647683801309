// The product of a batch of few rows: a block computes one or two tiles of 16 outputs for up to 64
// rows.
//
//     warp s    slice s of the inputs: weights from memory into registers, some steps ahead;
//               rows from the cache, once for all tiles; tensor-core products into
//               sums[tile][row tile][4]
//     block     tile by tile: slices added in ascending order in shared memory, then Finish
//
// More than 64 rows are groups in the grid's second direction.
//
// Included by gemm_batch_*.cu alone, each for some types.
#pragma once

#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm/gemm_choice.hpp"
#include "model/kernels/cuda/gemm/gemm_finish.cuh"
#include "model/kernels/cuda/gemm/gemm_kernels.hpp"
#include "model/kernels/cuda/gemm/gemm_steps.cuh"
#include "model/kernels/cuda/launch.cuh"

namespace paceline::cuda {

// Floats between two rows of a tile in shared memory: not 16, or four lanes would meet in a bank.
inline constexpr int kRowFloats = 20;

constexpr std::size_t batch_shared_bytes(int slices, int row_tiles) {
    const int rows = row_tiles * kTileRows;
    return static_cast<std::size_t>(slices * rows * kRowFloats + rows) * sizeof(float);
}

/// Whether what the finish reads (row index, hidden state, norm weight) is loaded before the
/// products: in batches of up to 16 rows, where decoding happens. Measured there
/// (bench/results/h100).
constexpr bool loads_finish_ahead(WeightType type, int row_tiles) {
    return type != WeightType::F32 && row_tiles <= 2;
}

/// The rows of a block: [first, first + count) of the call.
struct BlockRows {
    int first;
    int count;
};
template <int kRowTiles>
PACE_DEVICE BlockRows block_rows(const GemmArgs& args) {
    // Another stream may be setting it to 0: all lanes of a warp take what the first one saw.
    const int first = block_y() * kRowTiles * kTileRows;
    const int left = shuffle(*args.rows, 0) - first;
    const int most = kRowTiles * kTileRows;
    return {first, left < 0 ? 0 : left < most ? left : most};
}

template <int kRowTiles>
PACE_DEVICE LaneRows<kRowTiles> lane_rows(const GemmArgs& args, const BlockRows& rows) {
    LaneRows<kRowTiles> lanes;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
        const int row = n * kTileRows + lane() / 4;
        lanes.at[n] = row < rows.count ? static_cast<const std::uint16_t*>(args.x) +
                                             static_cast<std::size_t>(rows.first + row) *
                                                 static_cast<std::size_t>(args.x_stride)
                                       : nullptr;
    }
    return lanes;
}

/// A step of all tiles: `inputs(part, n)` is asked for once for all of them.
template <WeightType kType, int kTiles, int kRowTiles, class Inputs>
PACE_DEVICE void multiply_step(const Step<kType> (&weights)[kTiles],
                               const Inputs& inputs,
                               float (&sums)[kTiles][kRowTiles][4]) {
#pragma unroll
    for (int part = 0; part < Step<kType>::kGroups; ++part) {
        Group<kType> groups[kTiles];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) groups[tile] = weights[tile].group(part);
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            const Words4 x = inputs(part, n);
            const InputSums<kType> totals = sum_inputs<kType>(x);
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile)
                add_group<kType>(sums[tile][n], groups[tile], x, totals);
        }
    }
}

/// Steps whose weights are on their way: as many as there are registers for.
template <WeightType kType, int kTiles, int kRowTiles>
struct WeightRing {
    static constexpr int kAhead = kTiles * kRowTiles >= 16 ? 2 : 4;
    Step<kType> steps[kAhead][kTiles];

    PACE_DEVICE void load(const DeviceMatrix& weights, int i, int step) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
            steps[i][tile].load(weights, block_x() * kTiles + tile, step);
    }
};

/// What the finish of a thread's first row reads, for each tile; not used unless
/// loads_finish_ahead().
template <int kTiles>
struct BatchFinish {
    FinishInputs loaded[kTiles];

    /// `place` is finish_place() of the thread's first row.
    PACE_DEVICE void load(const GemmArgs& args, const BlockRows& rows, int place) {
        const int row = thread_index() / kTileOutputs;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
            loaded[tile] =
                finish_inputs(args.finish, block_x() * kTiles + tile, thread_index() % kTileOutputs,
                              place, args.weights.outputs, row < rows.count);
    }
};

/// A warp's slice of the products, for all tiles and rows of its block.
template <WeightType kType, int kTiles, int kRowTiles>
PACE_DEVICE void multiply_slice(const GemmArgs& args,
                                const Slice& slice,
                                const BlockRows& rows,
                                WeightRing<kType, kTiles, kRowTiles>& ring,
                                float (&sums)[kTiles][kRowTiles][4]) {
    constexpr int kAhead = WeightRing<kType, kTiles, kRowTiles>::kAhead;
    const LaneRows<kRowTiles> lanes = lane_rows<kRowTiles>(args, rows);
    // A batch that was stopped has no rows: its products are not computed.
    const int last = rows.count == 0 ? slice.first : slice.last;
    for (int first = slice.first; first < last; first += kAhead) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            const int step = first + i;
            if (step >= last) break;
            if constexpr (kType == WeightType::F32) {
                const float* x =
                    static_cast<const float*>(args.x) +
                    static_cast<std::size_t>(rows.first) * static_cast<std::size_t>(args.x_stride);
                ring.steps[i][0].multiply(x, args.x_stride, rows.count, step, sums[0]);
            } else {
                multiply_step<kType>(
                    ring.steps[i],
                    [&](int part, int n) {
                        return lanes.template load<kType>(n, step * step_inputs(kType) + part * 32);
                    },
                    sums);
            }
            if (step + kAhead < last) ring.load(args.weights, i, step + kAhead);
        }
    }
}

template <int kRowTiles>
PACE_DEVICE void share_sums(const float (&sums)[kRowTiles][4], float* part) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = n * kTileRows + 2 * (lane() % 4) + i % 2;
            part[row * kRowFloats + lane() / 4 + i / 2 * 8] = sums[n][i];
        }
    }
}

/// Adds the slices of one tile's products and finishes its outputs, row by row.
template <bool kAhead, int kTiles, int kRowTiles>
PACE_DEVICE void finish_tile(const GemmArgs& args,
                             const BlockRows& rows,
                             int tile,
                             const float* parts,
                             const float* factors,
                             const BatchFinish<kTiles>& ahead) {
    constexpr int kRows = kRowTiles * kTileRows;
    const int slices = block_size() / 32;
    const int o = thread_index() % kTileOutputs;
    const int first_row = thread_index() / kTileOutputs;
    const int global_tile = block_x() * kTiles + tile;
    const int outputs = args.weights.outputs;
    for (int row = first_row; row < (rows.count + 1) / 2 * 2; row += block_size() / kTileOutputs) {
        const bool there = row < rows.count;
        float y = parts[row * kRowFloats + o];
        for (int s = 1; s < slices; ++s) y += parts[(s * kRows + row) * kRowFloats + o];
        y = there ? y * factors[row] : 0.0f;
        if constexpr (kAhead) {
            // Blocks of few slices have fewer threads and go round: further rows are loaded here.
            FinishInputs inputs = ahead.loaded[tile];
            if (row != first_row)
                inputs = finish_inputs(args.finish, global_tile, o,
                                       finish_place(args.finish, rows.first + row, there), outputs,
                                       there);
            finish_output(args.finish, global_tile, o, rows.first + row, y, outputs, there,
                          &inputs);
        } else {
            finish_output(args.finish, global_tile, o, rows.first + row, y, outputs, there);
        }
    }
}

template <WeightType kType, int kTiles, int kRowTiles>
PACE_KERNEL void gemm_batch(GemmArgs args) {
    constexpr bool kAhead = loads_finish_ahead(kType, kRowTiles);
    constexpr int kRows = kRowTiles * kTileRows;
    const int slices = block_size() / 32;
    float* parts = shared_memory<float>(0);  // [slices][kRows][kRowFloats]
    float* factors = parts + slices * kRows * kRowFloats;

    const Slice slice = slice_of(steps_of(kType, args.weights.inputs), warp(), slices);
    WeightRing<kType, kTiles, kRowTiles> ring;
#pragma unroll
    for (int i = 0; i < ring.kAhead; ++i) {
        if (slice.first + i < slice.last) ring.load(args.weights, i, slice.first + i);
    }
    // No kernel writes weights; rows are the output of the kernel before.
    wait_for_previous();
    let_next_start();
    const BlockRows rows = block_rows<kRowTiles>(args);
    BatchFinish<kTiles> finish;
    [[maybe_unused]] int place = 0;
    if constexpr (kAhead) {
        const int row = thread_index() / kTileOutputs;
        place = finish_place(args.finish, rows.first + row, row < rows.count);
    }
    // While the first weights are on their way.
    for (int row = warp(); row < rows.count; row += slices) {
        const float factor = norm_factor(args.finish.norm, rows.first + row);
        if (lane() == 0) factors[row] = factor;
    }
    if constexpr (kAhead) finish.load(args, rows, place);

    float sums[kTiles][kRowTiles][4] = {};
    multiply_slice<kType, kTiles, kRowTiles>(args, slice, rows, ring, sums);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
        if (tile > 0) sync_block();  // the tile before has been read
        share_sums(sums[tile], parts + warp() * kRows * kRowFloats);
        sync_block();
        finish_tile<kAhead, kTiles, kRowTiles>(args, rows, tile, parts, factors, finish);
    }
}

/// Launches the kernel as `choice` says.
template <WeightType kType, int kTiles, int kRowTiles>
void launch_batch(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    LaunchShape shape;
    const int slices = slices_of(steps_of(kType, args.weights.inputs));
    shape.blocks_x = divided_up(args.weights.tiles(), kTiles);
    shape.blocks_y = choice.groups;
    shape.threads = 32 * slices;
    shape.shared_bytes = batch_shared_bytes(slices, kRowTiles);
    shape.overlaps_previous = true;
    launch(stream, shape, gemm_batch<kType, kTiles, kRowTiles>, args);
}

template <WeightType kType, int kRowTiles>
void launch_batch_rows(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    if constexpr (batch_tiles(kType, kRowTiles) > 0)
        launch_batch<kType, batch_tiles(kType, kRowTiles), kRowTiles>(stream, args, choice);
}

/// `choice` is one that batch_tiles() knows.
template <WeightType kType>
void launch_gemm_batch_of(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    switch (choice.row_tiles) {
        case 1:
            return launch_batch_rows<kType, 1>(stream, args, choice);
        case 2:
            return launch_batch_rows<kType, 2>(stream, args, choice);
        default:
            return launch_batch_rows<kType, 4>(stream, args, choice);
    }
}

}  // namespace paceline::cuda

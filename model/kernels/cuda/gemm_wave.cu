// The product of a wave of few rows: a block computes one or two tiles of 16 outputs for up to 64 rows.
//
//     warp s    slice s of the inputs: weights from memory into registers, some steps ahead;
//               rows from the cache, once for all tiles; tensor-core products into
//               sums[tile][row tile][4]
//     block     tile by tile: slices added in ascending order in shared memory, then Finish
//
// More than 64 rows are groups in the grid's second direction.
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm_finish.cuh"
#include "model/kernels/cuda/gemm_kernels.hpp"
#include "model/kernels/cuda/gemm_steps.cuh"
#include "model/kernels/cuda/launch.cuh"

namespace paceline::cuda {
namespace {

// Floats between two rows of a tile in shared memory: not 16, or four lanes would meet in a bank.
constexpr int kRowFloats = 20;

constexpr std::size_t shared_bytes(int slices, int row_tiles) {
    const int rows = row_tiles * kTileRows;
    return static_cast<std::size_t>(slices * rows * kRowFloats + rows) * sizeof(float);
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

/// A step of all tiles: rows are read once for all of them.
template <WeightType kType, int kTiles, int kRowTiles>
PACE_DEVICE void multiply_step(const Step<kType> (&weights)[kTiles],
                               const LaneRows<kRowTiles>& rows,
                               int step,
                               float (&sums)[kTiles][kRowTiles][4]) {
#pragma unroll
    for (int part = 0; part < Step<kType>::kGroups; ++part) {
        Group<kType> groups[kTiles];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) groups[tile] = weights[tile].group(part);
        const int input = step * step_inputs(kType) + part * 32 + lane() % 4 * 8;
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            const Words4 x = rows.load(n, input);
            const InputSums totals = sum_inputs<kType>(x);
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile)
                add_group<kType>(sums[tile][n], groups[tile], x, totals);
        }
    }
}

template <WeightType kType, int kTiles, int kRowTiles>
PACE_DEVICE BlockRows multiply_slice(const GemmArgs& args,
                                     int slices,
                                     float* factors,
                                     float (&sums)[kTiles][kRowTiles][4]) {
    // Steps whose weights are on their way: as many as there are registers for.
    constexpr int kAhead = kTiles * kRowTiles >= 16 ? 2 : 4;
    const Slice slice = slice_of(steps_of(kType, args.weights.inputs), warp(), slices);
    const int first_tile = block_x() * kTiles;
    Step<kType> ring[kAhead][kTiles];
    const auto load = [&](int i, int step) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
            ring[i][tile].load(args.weights, first_tile + tile, step);
    };
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
        if (slice.first + i < slice.last) load(i, slice.first + i);
    }
    // Weights are nobody's output; rows are the kernel's before.
    wait_for_previous();
    const BlockRows rows = block_rows<kRowTiles>(args);
    // While the first weights are on their way.
    for (int row = warp(); row < rows.count; row += slices) {
        const float factor = norm_factor(args.finish.norm, rows.first + row);
        if (lane() == 0) factors[row] = factor;
    }
    const LaneRows<kRowTiles> lanes = lane_rows<kRowTiles>(args, rows);
    // A wave that was stopped has no rows: nobody waits for its weights any more.
    const int last = rows.count == 0 ? slice.first : slice.last;
    for (int step = slice.first; step < last; step += kAhead) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            if (step + i >= last) break;
            if constexpr (kType == WeightType::F32) {
                const float* x =
                    static_cast<const float*>(args.x) +
                    static_cast<std::size_t>(rows.first) * static_cast<std::size_t>(args.x_stride);
                ring[i][0].multiply(x, args.x_stride, rows.count, step + i, sums[0]);
            } else {
                multiply_step<kType>(ring[i], lanes, step + i, sums);
            }
            if (step + i + kAhead < last) load(i, step + i + kAhead);
        }
    }
    return rows;
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

template <WeightType kType, int kTiles, int kRowTiles>
PACE_KERNEL void gemm_wave(GemmArgs args) {
    constexpr int kRows = kRowTiles * kTileRows;
    const int slices = block_size() / 32;
    float* parts = shared_memory<float>(0);  // [slices][kRows][kRowFloats]
    float* factors = parts + slices * kRows * kRowFloats;

    float sums[kTiles][kRowTiles][4] = {};
    const BlockRows rows = multiply_slice<kType>(args, slices, factors, sums);
    let_next_start();

    const int o = thread_index() % kTileOutputs;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
        if (tile > 0) sync_block();  // the tile before has been read
        share_sums(sums[tile], parts + warp() * kRows * kRowFloats);
        sync_block();
        for (int row = thread_index() / kTileOutputs; row < (rows.count + 1) / 2 * 2;
             row += block_size() / kTileOutputs) {
            const bool there = row < rows.count;
            float y = parts[row * kRowFloats + o];
            for (int s = 1; s < slices; ++s) y += parts[(s * kRows + row) * kRowFloats + o];
            finish_output(args.finish, block_x() * kTiles + tile, o, rows.first + row,
                          there ? y * factors[row] : 0.0f, args.weights.outputs, there);
        }
    }
}

template <WeightType kType, int kTiles, int kRowTiles>
void launch(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    LaunchShape shape;
    const int slices = slices_of(steps_of(kType, args.weights.inputs));
    shape.blocks_x = divided_up(args.weights.tiles(), kTiles);
    shape.blocks_y = choice.groups;
    shape.threads = 32 * slices;
    shape.shared_bytes = shared_bytes(slices, kRowTiles);
    shape.overlaps_previous = true;
    paceline::cuda::launch(stream, shape, gemm_wave<kType, kTiles, kRowTiles>, args);
}

template <WeightType kType, int kRowTiles>
void launch_tiles(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    if constexpr (tiles_max(kType, kRowTiles) == 2) {
        if (choice.tiles == 2) return launch<kType, 2, kRowTiles>(stream, args, choice);
    }
    launch<kType, 1, kRowTiles>(stream, args, choice);
}

template <WeightType kType>
void launch_rows(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    switch (choice.row_tiles) {
        case 1:
            return launch_tiles<kType, 1>(stream, args, choice);
        case 2:
            return launch_tiles<kType, 2>(stream, args, choice);
        case 4:
            return launch_tiles<kType, 4>(stream, args, choice);
        default:
            return launch_tiles<kType, 8>(stream, args, choice);
    }
}

}  // namespace

void launch_gemm_wave(Stream& stream, const GemmArgs& args, const GemmChoice& choice) {
    switch (args.weights.type) {
        case WeightType::F32:
            return launch_rows<WeightType::F32>(stream, args, choice);
        case WeightType::BF16:
            return launch_rows<WeightType::BF16>(stream, args, choice);
        case WeightType::Int8:
            return launch_rows<WeightType::Int8>(stream, args, choice);
        case WeightType::Q4:
            return launch_rows<WeightType::Q4>(stream, args, choice);
    }
}

}  // namespace paceline::cuda

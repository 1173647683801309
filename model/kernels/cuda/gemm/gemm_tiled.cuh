// The product of a prefill's many rows: a block computes a square of outputs and rows, both through
// shared memory.
//
//     copies    stages of 64 inputs, weights as they lie in memory and rows, two stages ahead
//     warp      4 (2) tiles of 16 outputs x 4 tiles of 8 rows: in bf16 12 (8) reads of 16 bytes a
//               lane for 32 (16) tensor-core products; rows are read 8 bytes at a time in types
//               with a scale per 16 inputs. Sums of a slice, added to the total where it ends
//     block     totals through shared memory, then Finish
//
// The order of sums is that of the batch kernel: group after group from zero within a slice, slices
// in ascending order. What differs is who holds what: here a total begins as -0 instead of the
// first slice, which is the same: -0 is the one number that adds nothing, not even a sign.
//
// Included by gemm_tiled_codes.cu, _blocks.cu and _k_blocks.cu alone, each for some types.
#pragma once

#include "model/kernels/cuda/gemm/gemm_kernels.hpp"
#include "model/kernels/cuda/gemm/gemm_square.cuh"
#include "model/kernels/cuda/launch.cuh"

namespace paceline::cuda {
namespace tiled {

// The large square takes 96 KB, which devices of 8.6 and 8.9 have too.
inline constexpr int kStages = 3;
inline constexpr int kWarpRowTiles = 4;

/// The shape of a block with `kTile` outputs and as many rows.
template <int kTile>
struct Square {
    static constexpr int kTiles = kTile / kTileOutputs;
    static constexpr int kWarpTiles = kTile == kLargeTile ? 4 : 2;  // of outputs, of a warp
    static constexpr int kWarpsOfOutputs = kTiles / kWarpTiles;
    static constexpr int kWarpsOfRows = kTile / (kWarpRowTiles * kTileRows);
    static constexpr int kThreads = 32 * kWarpsOfOutputs * kWarpsOfRows;
};

/// Bytes of a tile's weights in a stage, without its head.
constexpr int stage_tile_bytes(WeightType type) {
    return type == WeightType::BF16
               ? kTileOutputs * kPieces * 16
               : kStageInputs / step_inputs(type) * static_cast<int>(record_bytes(type));
}
/// Bytes of a tile's head in a stage.
constexpr int stage_head_bytes(WeightType type) {
    return type == WeightType::BF16 ? 0 : 8 * head_bytes(type);
}
/// Where heads begin in a stage: after the weights of all tiles.
template <WeightType kType, int kTile>
constexpr int heads_at() {
    return Square<kTile>::kTiles * stage_tile_bytes(kType);
}
/// Bytes of weights and heads in a stage.
template <WeightType kType, int kTile>
constexpr int weights_bytes() {
    return heads_at<kType, kTile>() + Square<kTile>::kTiles * stage_head_bytes(kType);
}
template <WeightType kType, int kTile>
constexpr int stage_bytes() {
    return weights_bytes<kType, kTile>() + kTile * kPieces * 16;
}
template <WeightType kType, int kTile>
constexpr int shared_bytes() {
    constexpr int kResults = results_bytes(kTile);
    constexpr int kCopies = kStages * stage_bytes<kType, kTile>();
    return kCopies > kResults ? kCopies : kResults;
}

/// Weights and rows of a block's stages, as one thread copies them.
template <WeightType kType, int kTile>
struct Copier {
    using Shape = Square<kTile>;
    static constexpr int kThreads = Shape::kThreads;
    static constexpr int kTileBytes = stage_tile_bytes(kType);
    static constexpr int kWeightPieces = Shape::kTiles * kTileBytes / 16;
    static constexpr int kHeadPieces = Shape::kTiles * stage_head_bytes(kType) / 16;
    static constexpr int kRowPieces = kTile * kPieces;
    static constexpr int kRowsApart = kThreads / kPieces;  // of a thread's pieces
    static_assert(kRowsApart % 4 == 0, "a piece has the same place in all rows of a thread");
    static_assert(kHeadPieces <= kThreads, "a thread copies one piece of the heads, or none");

    Copies<divided_up(kWeightPieces, kThreads), kThreads> weights;
    Copies<1, kThreads> heads;
    Copies<kRowPieces / kThreads, kThreads> rows;
    int weights_to, rows_to;

    PACE_DEVICE Copier(const GemmArgs& args, const Place& place) {
        const int row = thread_index() / kPieces;
        const int piece = thread_index() % kPieces;
        rows_to = weights_bytes<kType, kTile>() + place_in_stage(row, piece);
        weights_to = kType == WeightType::BF16 ? place_in_stage(row, piece) : thread_index() * 16;
#pragma unroll
        for (int i = 0; i < kRowPieces / kThreads; ++i) {
            // Rows that are not there are the last one: their results are not kept.
            int from = place.first_row + row + i * kRowsApart;
            from = from < place.rows ? from : place.rows - 1;
            rows.from[i] =
                static_cast<const unsigned char*>(args.x) +
                (static_cast<std::size_t>(from) * static_cast<std::size_t>(args.x_stride) +
                 static_cast<std::size_t>(piece * 8)) *
                    2;
            rows.last[i] = last_stage(place, piece / (kPieces / 2));
        }
        if constexpr (kType == WeightType::BF16) {
            weights = RowMajorWeights<kTile, kThreads>{args.weights, place}.copies;
        } else {
            // A tile's records lie one after the other.
            constexpr int kTilePieces = kTileBytes / 16;
#pragma unroll
            for (int i = 0; i < divided_up(kWeightPieces, kThreads); ++i) {
                const int at = thread_index() + i * kThreads;
                const int within = at % kTilePieces;
                weights.from[i] =
                    tile_of<kType>(args.weights, place.first_tile + at / kTilePieces) + within * 16;
                const int half = kType == WeightType::Int8 ? within / (kTilePieces / 2) : 0;
                weights.last[i] = at < kWeightPieces ? last_stage(place, half) : -1;
            }
            begin_heads(args, place);
        }
    }

    PACE_DEVICE void begin_heads(const GemmArgs& args, const Place& place) {
        if constexpr (kHeadPieces > 0) {
            constexpr int kPiecesATile = stage_head_bytes(kType) / 16;
            const int at = thread_index();
            const unsigned char* tile =
                tile_of<kType>(args.weights, place.first_tile + at / kPiecesATile);
            heads.from[0] = heads_of<kType>(args.weights, tile) + at % kPiecesATile * 16;
            heads.last[0] = at < kHeadPieces ? place.stages - 1 : -1;
        }
    }

    /// Puts the copies of the next stage on their way.
    PACE_DEVICE void copy(int stage, unsigned char* to) {
        constexpr int kWeightBytes = kType == WeightType::BF16 ? kRowBytes : kTileBytes;
        weights.copy(stage, kWeightBytes, to + weights_to);
        if constexpr (kHeadPieces > 0) {
            // Each stage has a copy of its head; kShared stages in a row have the same one.
            constexpr int kShared = kHeadInputs / kStageInputs;
            const bool last = stage % kShared == kShared - 1;
            heads.copy(stage, last ? stage_head_bytes(kType) : 0,
                       to + heads_at<kType, kTile>() + thread_index() * 16);
        }
        rows.copy(stage, kRowBytes, to + rows_to);
        commit_copies();  // also of nothing: they are counted
    }
};

/// A tile's weights of 32 inputs, from a stage: what Step::load() and group() give. `weights` is
/// where those of the warp's first tile begin (of BF16: for this lane), `heads` where its heads do.
template <WeightType kType>
PACE_DEVICE Group<kType> group_of(const unsigned char* weights,
                                  const unsigned char* heads,
                                  int tile,
                                  unsigned half,
                                  std::uint32_t zero) {
    Step<kType> step;
    const unsigned char* record = weights + tile * stage_tile_bytes(kType);
    if constexpr (kType == WeightType::BF16) {
        step.low = words_at(record);
        step.high = words_at(record + 8 * kRowBytes);
        Group<kType> group = step.group(0);
        group.weights = group.weights.anew(zero);
        return group;
    } else {
        if constexpr (Step<kType>::kGroups == 1) record += half * record_bytes(kType);
        step.record.template read<false>(record, heads + tile * stage_head_bytes(kType));
        return step.group(Step<kType>::kGroups == 1 ? 0 : static_cast<int>(half));
    }
}

/// A lane's eight inputs of row g of a tile of rows, whose first byte is `within` bytes after the
/// tile's: 16 bytes, or 8 bytes from each half of the group.
template <WeightType kType>
PACE_DEVICE Words4 inputs_at(const unsigned char* tile, int within) {
    if constexpr (!has_halves(block_format(kType).form)) {
        return words_at(tile + within);
    } else {
        constexpr int kHalf = 32;  // bytes: the other half of a group differs in this bit
        const auto first = *reinterpret_cast<const Words2*>(tile + within);
        const auto second = *reinterpret_cast<const Words2*>(tile + (within ^ kHalf));
        return {first.x, first.y, second.x, second.y};
    }
}
/// Where the lane's inputs of group 0 begin, in bytes after those of the tile of rows.
template <WeightType kType>
PACE_DEVICE int inputs_within() {
    const int row = lane() / 4;
    const int t = lane() % 4;
    if constexpr (has_halves(block_format(kType).form))
        return row * kRowBytes + piece_at(row, t / 2) + t % 2 * 8;
    return row * kRowBytes + piece_at(row, t);
}

template <int kWarpTiles>
struct Sums {
    float of[kWarpTiles][kWarpRowTiles][4];

    PACE_DEVICE void fill(float value) {
#pragma unroll
        for (int i = 0; i < kWarpTiles * kWarpRowTiles * 4; ++i)
            of[i / (kWarpRowTiles * 4)][i / 4 % kWarpRowTiles][i % 4] = value;
    }
    PACE_DEVICE void add(const Sums& other) {
#pragma unroll
        for (int i = 0; i < kWarpTiles * kWarpRowTiles * 4; ++i)
            of[i / (kWarpRowTiles * 4)][i / 4 % kWarpRowTiles][i % 4] +=
                other.of[i / (kWarpRowTiles * 4)][i / 4 % kWarpRowTiles][i % 4];
    }
};

/// 32 inputs of a stage into a warp's sums.
template <WeightType kType, int kTile>
PACE_DEVICE void multiply_half(const unsigned char* stage,
                               unsigned half,
                               std::uint32_t zero,
                               Sums<Square<kTile>::kWarpTiles>& sums) {
    using Shape = Square<kTile>;
    const int first_tile = warp() % Shape::kWarpsOfOutputs * Shape::kWarpTiles;
    const int first_row = warp() / Shape::kWarpsOfOutputs * kWarpRowTiles * kTileRows;
    // Row g of every tile has the same order of pieces. The pieces of the other half of a stage
    // differ in one bit of their place.
    const int within = inputs_within<kType>() ^ static_cast<int>(half * (kRowBytes / 2));
    const unsigned char* rows = stage + weights_bytes<kType, kTile>() + first_row * kRowBytes;
    const unsigned char* weights =
        stage + first_tile * stage_tile_bytes(kType) + (kType == WeightType::BF16 ? within : 0);
    const unsigned char* heads =
        stage + heads_at<kType, kTile>() + first_tile * stage_head_bytes(kType);
    Words4 x[kWarpRowTiles];
    InputSums<kType> totals[kWarpRowTiles];
#pragma unroll
    for (int n = 0; n < kWarpRowTiles; ++n) {
        x[n] = inputs_at<kType>(rows + n * kTileRows * kRowBytes, within);
        totals[n] = sum_inputs<kType>(x[n]);
    }
#pragma unroll
    for (int m = 0; m < Shape::kWarpTiles; ++m) {
        const Group<kType> group = group_of<kType>(weights, heads, m, half, zero);
#pragma unroll
        for (int n = 0; n < kWarpRowTiles; ++n)
            add_group<kType>(sums.of[m][n], group, x[n], totals[n]);
    }
}

/// A warp's totals over all inputs.
template <WeightType kType, int kTile>
PACE_DEVICE void multiply(const TiledArgs& args,
                          const Place& place,
                          Sums<Square<kTile>::kWarpTiles>& totals) {
    unsigned char* const ring = shared_memory<unsigned char>(0);
    constexpr int kBytes = stage_bytes<kType, kTile>();
    constexpr int kGroupsAStep = step_inputs(kType) / 32;
    Copier<kType, kTile> copier{args.call, place};
#pragma unroll
    for (int stage = 0; stage + 1 < kStages; ++stage) copier.copy(stage, ring + stage * kBytes);

    totals.fill(-0.0f);
    const unsigned char* stage = nullptr;
    unsigned group = 0;
    for (int slice = 0; slice < args.slices; ++slice) {
        Sums<Square<kTile>::kWarpTiles> sums;
        sums.fill(0.0f);
        const auto end =
            static_cast<unsigned>(slice_of(place.steps, slice, args.slices).last * kGroupsAStep);
        for (; group < end; ++group) {
            if (group % 2 == 0) {
                const unsigned now = group / 2;
                wait_copies<kStages - 2>();
                sync_block();  // and everyone is done with the stage before: its place is taken now
                const unsigned next = now + kStages - 1;
                copier.copy(static_cast<int>(next), ring + next % kStages * kBytes);
                stage = ring + now % kStages * kBytes;
            }
            multiply_half<kType, kTile>(stage, group % 2, args.zero, sums);
        }
        totals.add(sums);
    }
    wait_copies<0>();
    sync_block();
}

/// Totals to shared memory: results[row][output].
template <int kTile>
PACE_DEVICE void share_totals(const Sums<Square<kTile>::kWarpTiles>& totals, float* results) {
    using Shape = Square<kTile>;
    const int first_output =
        warp() % Shape::kWarpsOfOutputs * Shape::kWarpTiles * kTileOutputs + lane() / 4;
    const int first_row =
        warp() / Shape::kWarpsOfOutputs * kWarpRowTiles * kTileRows + lane() % 4 * 2;
#pragma unroll
    for (int m = 0; m < Shape::kWarpTiles; ++m) {
#pragma unroll
        for (int i = 0; i < kWarpRowTiles * 4; ++i) {
            const int n = i / 4;
            const int c = i % 4;
            results[(first_row + n * kTileRows + c % 2) * result_floats(kTile) + first_output +
                    m * kTileOutputs + c / 2 * 8] = totals.of[m][n][c];
        }
    }
}

template <WeightType kType, int kTile>
PACE_KERNEL void gemm_tiled(TiledArgs args) {
    using Shape = Square<kTile>;
    wait_for_previous();
    Place place = place_of<kType, kTile>(args.call);
    place.rows = rows_of_call(args.call, shared_memory<int>(0));
    if (place.first_row >= place.rows) return;  // a batch that was stopped has none
    Sums<Shape::kWarpTiles> totals;
    multiply<kType, kTile>(args, place, totals);
    let_next_start();
    float* results = shared_memory<float>(0);
    share_totals<kTile>(totals, results);
    finish_square<kTile, Shape::kThreads>(args.call, place, results);
}

template <WeightType kType, int kTile>
void launch_square(Stream& stream, const GemmArgs& args, int rows) {
    TiledArgs tiled;
    tiled.call = args;
    tiled.slices = slices_of(steps_of(kType, args.weights.inputs));
    LaunchShape shape;
    shape.blocks_x = divided_up(rows, kTile);
    shape.blocks_y = divided_up(args.weights.tiles(), Square<kTile>::kTiles);
    shape.threads = Square<kTile>::kThreads;
    shape.shared_bytes = static_cast<std::size_t>(shared_bytes<kType, kTile>());
    shape.overlaps_previous = true;
    launch(stream, shape, gemm_tiled<kType, kTile>, tiled);
}

}  // namespace tiled

template <WeightType kType>
void launch_gemm_tiled_of(Stream& stream,
                          const GemmArgs& args,
                          const GemmChoice& choice,
                          int rows) {
    if (choice.tile == kLargeTile)
        return tiled::launch_square<kType, kLargeTile>(stream, args, rows);
    tiled::launch_square<kType, kSmallTile>(stream, args, rows);
}

}  // namespace paceline::cuda

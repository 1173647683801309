// The product of a prefill's many rows: a block computes a square of outputs and rows, both through
// shared memory.
//
//     copies    stages of 64 inputs, weights as they lie in memory and rows, two stages ahead
//     warp      4 (2) tiles of 16 outputs x 4 tiles of 8 rows: 12 (8) reads of 16 bytes a lane for
//               32 (16) tensor-core products; sums of a slice, added to the total where it ends
//     block     totals through shared memory, then Finish
//
// The order of sums is that of the wave kernel: group after group from zero within a slice, slices
// in ascending order. What differs is who holds what: here a total begins as -0 instead of the first
// slice, which is the same: -0 is the one number that adds nothing, not even a sign.
//
// In shared memory a row of a stage is eight pieces of 16 bytes; odd rows have their halves swapped,
// so that the eight lanes that read at once, four pieces of two rows, meet in no bank.
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm_finish.cuh"
#include "model/kernels/cuda/gemm_kernels.hpp"
#include "model/kernels/cuda/gemm_steps.cuh"
#include "model/kernels/cuda/launch.cuh"

namespace paceline::cuda {
namespace {

constexpr int kStages = 3;  // of the large square 96 KB: what devices of 8.6 and 8.9 have too
constexpr int kStageInputs = 64;
constexpr int kPieces = kStageInputs * 2 / 16;  // of 16 bytes: of a row of x, or of bf16 weights
constexpr int kWarpRowTiles = 4;

/// The shape of a block with `kTile` outputs and as many rows.
template <int kTile>
struct Square {
    static constexpr int kTiles = kTile / kTileOutputs;
    static constexpr int kWarpTiles = kTile == kLargeTile ? 4 : 2;  // of outputs, of a warp
    static constexpr int kWarpsOfOutputs = kTiles / kWarpTiles;
    static constexpr int kWarpsOfRows = kTile / (kWarpRowTiles * kTileRows);
    static constexpr int kThreads = 32 * kWarpsOfOutputs * kWarpsOfRows;
    static constexpr int kResultFloats = kTile + 4;  // of a row: four rows meet in no bank
};

/// Bytes of a tile's weights in a stage.
constexpr int tile_bytes(WeightType type) {
    return type == WeightType::BF16
               ? kTileOutputs * kPieces * 16
               : kStageInputs / step_inputs(type) * static_cast<int>(record_bytes(type));
}
template <WeightType kType, int kTile>
constexpr int weights_bytes() {
    return Square<kTile>::kTiles * tile_bytes(kType);
}
template <WeightType kType, int kTile>
constexpr int stage_bytes() {
    return weights_bytes<kType, kTile>() + kTile * kPieces * 16;
}
template <WeightType kType, int kTile>
constexpr int shared_bytes() {
    constexpr int kResults = kTile * Square<kTile>::kResultFloats * 4;
    constexpr int kCopies = kStages * stage_bytes<kType, kTile>();
    return kCopies > kResults ? kCopies : kResults;
}

/// The bytes of a row's pieces in a stage.
constexpr int kRowBytes = kPieces * 16;

/// Where a piece of a row is, after the row's first byte.
PACE_DEVICE int piece_at(int row, int piece) {
    return (piece ^ (row % 2 * (kPieces / 2))) * 16;
}

struct TiledArgs {
    GemmArgs call;
    int slices = 1;
    std::uint32_t zero = 0;  // which the compiler does not know: Operands::anew()
};

/// What a block knows of its square.
struct Place {
    int first_tile;  // of outputs
    int first_row;
    int rows;    // of the call
    int steps;   // of the product
    int groups;  // of 32 inputs
    int stages;  // of 64
};
template <WeightType kType, int kTile>
PACE_DEVICE Place place_of(const GemmArgs& args) {
    Place place;
    // Neighbouring blocks share their weights: those are what does not fit into a cache.
    place.first_tile = block_y() * Square<kTile>::kTiles;
    place.first_row = block_x() * kTile;
    // Another stream may be setting it to 0: all threads take what the first one saw.
    int* shared = shared_memory<int>(0);
    if (thread_index() == 0) *shared = *args.rows;
    sync_block();
    place.rows = *shared;
    sync_block();  // copies go there
    place.steps = steps_of(kType, args.weights.inputs);
    place.groups = place.steps * step_inputs(kType) / 32;
    place.stages = divided_up(place.groups, 2);
    return place;
}

/// What one thread copies of every stage: pieces of 16 bytes whose places follow one another by
/// `kThreads` pieces in shared memory. All that depends on the thread is worked out once.
template <int kCount, int kThreads>
struct Copies {
    const unsigned char* from[kCount];
    int last[kCount];  // the stage after which there is nothing more to copy

    PACE_DEVICE void copy(int stage, int bytes_a_stage, unsigned char* to) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            if (stage <= last[i]) copy_async16(to + i * kThreads * 16, from[i]);
            from[i] += bytes_a_stage;
        }
    }
};

/// The stage after which half `half` of a stage is not there: the last stage may be half a one, and
/// what follows a row's last step may not be mapped.
PACE_DEVICE int last_stage(const Place& place, int half) {
    return (place.groups + 1 - half) / 2 - 1;
}

/// Weights and rows of a block's stages, as one thread copies them.
template <WeightType kType, int kTile>
struct Copier {
    using Shape = Square<kTile>;
    static constexpr int kThreads = Shape::kThreads;
    static constexpr int kTileBytes = tile_bytes(kType);
    static constexpr int kWeightPieces = Shape::kTiles * kTileBytes / 16;
    static constexpr int kRowPieces = kTile * kPieces;
    static constexpr int kRowsApart = kThreads / kPieces;  // of a thread's pieces
    static_assert(kRowsApart % 2 == 0, "all of a thread's rows are odd, or none");

    Copies<divided_up(kWeightPieces, kThreads), kThreads> weights;
    Copies<kRowPieces / kThreads, kThreads> rows;
    int weights_to, rows_to;

    PACE_DEVICE Copier(const GemmArgs& args, const Place& place) {
        const int row = thread_index() / kPieces;
        const int piece = thread_index() % kPieces;
        rows_to = weights_bytes<kType, kTile>() + row * kRowBytes + piece_at(row, piece);
        weights_to = kType == WeightType::BF16 ? row * kRowBytes + piece_at(row, piece)
                                               : thread_index() * 16;
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
#pragma unroll
            for (int i = 0; i < kWeightPieces / kThreads; ++i) {
                const int output = row + i * kRowsApart;
                weights.from[i] = reinterpret_cast<const unsigned char*>(
                    output_of<std::uint16_t>(args.weights, place.first_tile + output / kTileOutputs,
                                             output % kTileOutputs) +
                    piece * 8);
                weights.last[i] = last_stage(place, piece / (kPieces / 2));
            }
        } else {
            // A tile's records lie one after the other.
            constexpr int kTilePieces = kTileBytes / 16;
#pragma unroll
            for (int i = 0; i < divided_up(kWeightPieces, kThreads); ++i) {
                const int at = thread_index() + i * kThreads;
                const int within = at % kTilePieces;
                weights.from[i] =
                    record_of(args.weights, place.first_tile + at / kTilePieces, 0) + within * 16;
                const int half = kType == WeightType::Int8 ? within / (kTilePieces / 2) : 0;
                weights.last[i] = at < kWeightPieces ? last_stage(place, half) : -1;
            }
        }
    }

    /// Puts the copies of the next stage on their way.
    PACE_DEVICE void copy(int stage, unsigned char* to) {
        constexpr int kWeightBytes = kType == WeightType::BF16 ? kRowBytes : kTileBytes;
        weights.copy(stage, kWeightBytes, to + weights_to);
        rows.copy(stage, kRowBytes, to + rows_to);
        commit_copies();  // also of nothing: they are counted
    }
};

PACE_DEVICE Words4 words_at(const unsigned char* shared) {
    return *reinterpret_cast<const Words4*>(shared);
}

/// A tile's weights of 32 inputs, from a stage: what Step::load() and group() give. `weights` is
/// where those of the warp's first tile begin, for this lane.
template <WeightType kType>
PACE_DEVICE Group<kType> group_of(const unsigned char* weights,
                                  int tile,
                                  unsigned half,
                                  std::uint32_t zero) {
    Step<kType> step;
    const unsigned char* record = weights + tile * tile_bytes(kType);
    if constexpr (kType == WeightType::BF16) {
        step.low = words_at(record);
        step.high = words_at(record + 8 * kRowBytes);
        return {step.group(0).weights.anew(zero), {}, {}};
    } else if constexpr (kType == WeightType::Int8) {
        record += half * record_bytes(kType);
        step.values = words_at(record + lane() * 16);
        step.scales = *reinterpret_cast<const std::uint32_t*>(record + 512 + lane() / 4 * 4);
        return step.group(0);
    } else {
        step.values = words_at(record + lane() * 16);
        step.scales = words_at(record + 512 + lane() / 4 * 16);
        return step.group(static_cast<int>(half));
    }
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
    // Row g of every tile: odd together, so one place within a row for all. The other half's pieces
    // are where one bit is another.
    const int within = (lane() / 4 * kRowBytes + piece_at(lane() / 4, lane() % 4)) ^
                       static_cast<int>(half * (kRowBytes / 2));
    const unsigned char* rows =
        stage + weights_bytes<kType, kTile>() + first_row * kRowBytes + within;
    const unsigned char* weights =
        stage + first_tile * tile_bytes(kType) + (kType == WeightType::BF16 ? within : 0);
    Words4 x[kWarpRowTiles];
    InputSums totals[kWarpRowTiles];
#pragma unroll
    for (int n = 0; n < kWarpRowTiles; ++n) {
        x[n] = words_at(rows + n * kTileRows * kRowBytes);
        totals[n] = sum_inputs<kType>(x[n]);
    }
#pragma unroll
    for (int m = 0; m < Shape::kWarpTiles; ++m) {
        const Group<kType> group = group_of<kType>(weights, m, half, zero);
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
            results[(first_row + n * kTileRows + c % 2) * Shape::kResultFloats + first_output +
                    m * kTileOutputs + c / 2 * 8] = totals.of[m][n][c];
        }
    }
}

template <WeightType kType, int kTile>
PACE_KERNEL void gemm_tiled(TiledArgs args) {
    using Shape = Square<kTile>;
    wait_for_previous();
    const Place place = place_of<kType, kTile>(args.call);
    if (place.first_row >= place.rows) return;  // a wave that was stopped has none
    Sums<Shape::kWarpTiles> totals;
    multiply<kType, kTile>(args, place, totals);
    let_next_start();
    float* results = shared_memory<float>(0);
    share_totals<kTile>(totals, results);
    sync_block();

    // Sixteen lanes have a tile of a row; the two halves of a warp have neighbouring tiles.
    const Finish& finish = args.call.finish;
    const int o = thread_index() % kTileOutputs;
    for (int i = thread_index() / kTileOutputs; i < kTile * Shape::kTiles;
         i += Shape::kThreads / kTileOutputs) {
        const int tile = i % Shape::kTiles;
        const int row = place.first_row + i / Shape::kTiles;
        const bool there = row < place.rows;
        const float factor = norm_factor(finish.norm, there ? row : place.rows - 1);
        const float y = results[i / Shape::kTiles * Shape::kResultFloats + tile * kTileOutputs + o];
        finish_output(finish, place.first_tile + tile, o, row, there ? y * factor : 0.0f,
                      args.call.weights.outputs, there);
    }
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

template <WeightType kType>
void launch_type(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows) {
    if (choice.tile == kLargeTile) return launch_square<kType, kLargeTile>(stream, args, rows);
    launch_square<kType, kSmallTile>(stream, args, rows);
}

}  // namespace

void launch_gemm_tiled(Stream& stream, const GemmArgs& args, const GemmChoice& choice, int rows) {
    switch (args.weights.type) {
        case WeightType::F32:
            throw DeviceError("a product of floats: the tiled kernel does not take it");
        case WeightType::BF16:
            return launch_type<WeightType::BF16>(stream, args, choice, rows);
        case WeightType::Int8:
            return launch_type<WeightType::Int8>(stream, args, choice, rows);
        case WeightType::Q4:
            return launch_type<WeightType::Q4>(stream, args, choice, rows);
    }
}

}  // namespace paceline::cuda

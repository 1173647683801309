// What the two kernels of many rows share (gemm_tiled.cuh, gemm_tiled_wgmma.cu): a block's square
// of outputs and rows, the copies of its stages, and what is done with its totals.
//
// In shared memory a row of a stage is eight pieces of 16 bytes, in an order that avoids bank
// conflicts: odd rows have their halves swapped, rows 2 and 3 of each four the pairs of pieces
// within a half. Lanes that read at the same time, eight reading four pieces of two rows or sixteen
// reading two pieces of four rows, then use different banks.
#pragma once

#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm/gemm_choice.hpp"
#include "model/kernels/cuda/gemm/gemm_finish.cuh"
#include "model/kernels/cuda/gemm/gemm_steps.cuh"

namespace paceline::cuda {

inline constexpr int kStageInputs = 64;
inline constexpr int kPieces =
    kStageInputs * 2 / 16;                      // of 16 bytes: of a row of x, or of bf16 weights
inline constexpr int kRowBytes = kPieces * 16;  // of a row's pieces in a stage

/// Floats between two rows of totals in shared memory: four rows meet in no bank.
constexpr int result_floats(int tile) {
    return tile + 4;
}

/// Where a piece of a row is, after the row's first byte.
PACE_DEVICE int piece_at(int row, int piece) {
    return (piece ^ (row % 2 * 4 | row / 2 % 2 * 2)) * 16;
}

PACE_DEVICE Words4 words_at(const unsigned char* shared) {
    return *reinterpret_cast<const Words4*>(shared);
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

/// All but the rows of the call, which the kernel before may still write.
template <WeightType kType, int kTile>
PACE_DEVICE Place place_of(const GemmArgs& args) {
    Place place;
    // Neighbouring blocks share their weights: those are what does not fit into a cache.
    place.first_tile = block_y() * (kTile / kTileOutputs);
    place.first_row = block_x() * kTile;
    place.rows = 0;
    place.steps = steps_of(kType, args.weights.inputs);
    place.groups = place.steps * step_inputs(kType) / 32;
    place.stages = divided_up(place.groups, 2);
    return place;
}

/// The rows of the call, the same for all threads of a block: another stream may be setting the
/// number to 0. `scratch`: four bytes of shared memory that are free.
PACE_DEVICE int rows_of_call(const GemmArgs& args, int* scratch) {
    if (thread_index() == 0) *scratch = *args.rows;
    sync_block();
    const int rows = *scratch;
    sync_block();  // the bytes are free again
    return rows;
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

/// Where a thread's pieces of a row-major stage lie: of rows `kThreads / kPieces` apart.
PACE_DEVICE int place_in_stage(int row, int piece) {
    return row * kRowBytes + piece_at(row, piece);
}

/// bf16 weights of a square's stages, as one thread copies them.
template <int kTile, int kThreads>
struct RowMajorWeights {
    static constexpr int kRowsApart = kThreads / kPieces;  // of a thread's pieces
    static constexpr int kCount = kTile * kPieces / kThreads;
    static_assert(kRowsApart % 4 == 0, "a piece has the same place in all rows of a thread");

    Copies<kCount, kThreads> copies;

    PACE_DEVICE RowMajorWeights(const DeviceMatrix& weights, const Place& place) {
        const int piece = thread_index() % kPieces;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const int output = thread_index() / kPieces + i * kRowsApart;
            copies.from[i] = reinterpret_cast<const unsigned char*>(
                output_of<std::uint16_t>(weights, place.first_tile + output / kTileOutputs,
                                         output % kTileOutputs) +
                piece * 8);
            copies.last[i] = last_stage(place, piece / (kPieces / 2));
        }
    }

    /// `stage_at`: where the weights of this stage begin.
    PACE_DEVICE void copy(int stage, unsigned char* stage_at) {
        copies.copy(stage, kRowBytes,
                    stage_at + place_in_stage(thread_index() / kPieces, thread_index() % kPieces));
    }
};

/// Bytes of what finish_square() has in shared memory: totals, then a factor and a place for each
/// row.
constexpr int results_bytes(int tile) {
    return tile * (result_floats(tile) + 2) * 4;
}

/// The rows of a square, of one kind of Finish. A thread has one output of every second row; what
/// it is finished with is loaded for several rows at once, since it comes from memory.
template <FinishKind kKind, int kTile, int kThreads>
PACE_DEVICE void finish_rows(const GemmArgs& call, const Place& place, const float* results) {
    constexpr int kTiles = kTile / kTileOutputs;
    constexpr int kRowsApart = kThreads / kTile;
    constexpr int kAtOnce = 8;
    static_assert(kTile % (kRowsApart * kAtOnce) == 0, "no row is left over");
    const float* factors = results + kTile * result_floats(kTile);
    const auto* places = reinterpret_cast<const int*>(factors + kTile);
    const Finish& finish = call.finish;
    const int outputs = call.weights.outputs;
    const int o = thread_index() % kTileOutputs;
    const int tile = thread_index() / kTileOutputs % kTiles;
    const int column = (place.first_tile + tile) * kTileOutputs + o;
    const int rows = place.rows - place.first_row < kTile ? place.rows - place.first_row : kTile;
    FinishInputs inputs{0, 0.0f, 0.0f};
    if (finish.next.weights != nullptr && column < outputs && kKind != FinishKind::Gated)
        inputs.weight = finish.next.weights[column];
    for (int first = thread_index() / kTile; first < rows; first += kRowsApart * kAtOnce) {
        float hidden[kAtOnce] = {};
        if constexpr (kKind == FinishKind::Residual) {
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                const int row = first + i * kRowsApart;
                if (row < rows && column < outputs)
                    hidden[i] = *out_at(finish, places[row], column);
            }
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int row = first + i * kRowsApart;
            if (row >= rows) break;
            const float y =
                results[row * result_floats(kTile) + tile * kTileOutputs + o] * factors[row];
            if constexpr (kKind == FinishKind::Residual) {
                inputs.place = places[row];
                inputs.hidden = hidden[i];
            }
            finish_as<kKind>(finish, place.first_tile + tile, o, place.first_row + row, y, outputs,
                             true, &inputs);
        }
    }
}

/// A square's totals, results[row][output], through Finish. Shared memory behind them is its own.
template <int kTile, int kThreads>
PACE_DEVICE void finish_square(const GemmArgs& call, const Place& place, float* results) {
    float* factors = results + kTile * result_floats(kTile);
    auto* places = reinterpret_cast<int*>(factors + kTile);
    const Finish& finish = call.finish;
    for (int row = warp(); row < kTile; row += kThreads / 32) {
        const int at = place.first_row + row;
        if (at >= place.rows) break;
        const float factor = norm_factor(finish.norm, at);
        if (lane() == 0) {
            factors[row] = factor;
            places[row] = finish_place(finish, at, true);
        }
    }
    sync_block();  // the totals are there as well
    with_kind(finish.kind, [&](auto kind) {
        finish_rows<decltype(kind)::value, kTile, kThreads>(call, place, results);
    });
}

}  // namespace paceline::cuda

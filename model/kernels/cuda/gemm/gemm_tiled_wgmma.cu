// The product of many rows with bf16 weights on compute capability 9.0: a square of outputs and
// rows a block, as in gemm_tiled.cuh, multiplied by wgmma.
//
//     weights    copied as they lie in memory, kAhead stages of 64 inputs ahead; a warp reads its
//                16 outputs into registers
//     rows       through registers: their words are put into the order in which a step's inputs are
//                multiplied (gemm_steps.cuh), one stage ahead, loaded from memory three ahead
//     warpgroup  64 outputs x all rows of the square: four products of 16 inputs a stage, which run
//                while the next stages are copied
//     block      totals through shared memory, then Finish
//
// The sums are those of the other kernels, in their order, and the bits are theirs: a chain of
// wgmma products has the bits of one of mma.sync (tests/unit/cuda/wgmma). Sums begin at 0 within a
// slice, a total at -0.
//
// A stage's rows in shared memory: product of 16 inputs -> chunk of 8 inputs -> row -> 8 numbers.
//
// One of kStages places in shared memory is free again two stages after its products began: a warp
// begins a stage when its products of the one before the last have ended, and all warps have done
// that when they meet at the barrier of the next.
#include "model/kernels/cuda/gemm/gemm_kernels.hpp"
#include "model/kernels/cuda/gemm/gemm_square.cuh"
#include "model/kernels/cuda/launch.cuh"

namespace paceline::cuda {
namespace {

constexpr int kStages = 6;
constexpr int kAhead = kStages - 2;  // stages of weights on their way

/// A block with `kTile` outputs and as many rows; a warp has 16 outputs.
template <int kTile>
struct Shape {
    static constexpr int kThreads = kTile / kTileOutputs * 32;
    static constexpr int kSums =
        kTile / 2;  // of a thread: two outputs of each row, a quarter of the rows
    static constexpr int kWeightBytes = kTile * kRowBytes;
    static constexpr int kStageBytes = 2 * kWeightBytes;             // as many rows
    static constexpr int kSharedBytes = kStages * kStageBytes + 16;  // and a word for all threads
    static_assert(results_bytes(kTile) <= kSharedBytes, "totals take the stages' place");
};

/// A thread's part of a stage of rows: words of 16 bytes from memory, put where wgmma wants them.
template <int kTile>
struct StageRows {
    static constexpr int kWarps = Shape<kTile>::kThreads / 32;
    static constexpr int kCount = kTile * kPieces / Shape<kTile>::kThreads;

    const unsigned char* from[kCount];
    Words4 held[2][kCount];  // of even stages, of odd ones
    int groups;

    /// Rows that are not there are the last one: their results are not kept.
    PACE_DEVICE StageRows(const GemmArgs& args, const Place& place) : groups{place.groups} {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            int row = place.first_row + row_at(i);
            row = row < place.rows ? row : place.rows - 1;
            from[i] = static_cast<const unsigned char*>(args.x) +
                      (static_cast<std::size_t>(row) * static_cast<std::size_t>(args.x_stride) +
                       static_cast<std::size_t>(i % 2 * 32 + lane() % 4 * 8)) *
                          2;
        }
    }

    /// Part i: a group of 32 inputs, i % 2, of a row.
    PACE_DEVICE static int row_at(int i) {
        return (warp() + i / 2 * kWarps) * 8 + lane() / 4;
    }

    /// `odd` is stage % 2, known to the compiler.
    PACE_DEVICE void load(int stage, int odd) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            if (2 * stage + i % 2 < groups)
                held[odd][i] = *reinterpret_cast<const Words4*>(from[i] + stage * kRowBytes);
        }
    }
    PACE_DEVICE void store(unsigned char* stage_at, int odd) const {
        constexpr int kChunk = kTile * 16;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            unsigned char* to = stage_at + Shape<kTile>::kWeightBytes + i % 2 * 4 * kChunk +
                                row_at(i) * 16 + lane() % 4 * 4;
            const Words4& from_memory = held[odd][i];
            const std::uint32_t words[4] = {from_memory.x, from_memory.y, from_memory.z,
                                            from_memory.w};
#pragma unroll
            for (int k = 0; k < 4; ++k)
                *reinterpret_cast<std::uint32_t*>(to + k * kChunk) = words[k];
        }
    }
};

/// A warp's weights of a stage.
struct StageWeights {
    Operands groups[2];

    PACE_DEVICE void load(const unsigned char* stage_at) {
        const unsigned char* mine = stage_at + warp() * kTileOutputs * kRowBytes;
        const int row = lane() / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = place_in_stage(row, half * 4 + lane() % 4);
            const Words4 low = words_at(mine + at);
            const Words4 high = words_at(mine + 8 * kRowBytes + at);
            groups[half] =
                Operands::of({low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w});
        }
    }
};

/// A thread's sums of the slice at hand and its totals of those before.
template <int kTile>
struct SliceSums {
    static constexpr int kSums = Shape<kTile>::kSums;
    float sums[kSums];
    float totals[kSums];
    int slice = 0;
    int end;             // of the slice, in groups
    bool begun = false;  // the slice has products

    PACE_DEVICE SliceSums(const TiledArgs& args, const Place& place) : end{end_of(args, place)} {
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
            sums[i] = 0.0f;
            totals[i] = -0.0f;
        }
    }
    PACE_DEVICE int end_of(const TiledArgs& args, const Place& place) const {
        return slice_of(place.steps, slice, args.slices).last;
    }
    /// The slice is over: waits for its products.
    PACE_DEVICE void close(const TiledArgs& args, const Place& place) {
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(sums);
#pragma unroll
        for (int i = 0; i < kSums; ++i) totals[i] += sums[i];
        ++slice;
        end = end_of(args, place);
        begun = false;
        wgmma_begin();
    }
};

/// The products of one stage, put on their way.
template <int kTile>
PACE_DEVICE void multiply_stage(const TiledArgs& args,
                                const Place& place,
                                int stage,
                                const unsigned char* stage_at,
                                const StageWeights& weights,
                                SliceSums<kTile>& sums) {
    constexpr int kProductBytes = 2 * kTile * 16;
    const unsigned char* rows = stage_at + Shape<kTile>::kWeightBytes;
    wgmma_begin();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int group = 2 * stage + half;
        if (group >= place.groups) break;
        wgmma_bf16<kTile>(sums.sums, weights.groups[half].first, rows, sums.begun);
        wgmma_bf16<kTile>(sums.sums, weights.groups[half].second, rows + kProductBytes, true);
        rows += 2 * kProductBytes;
        sums.begun = true;
        if (group + 1 == sums.end) sums.close(args, place);
    }
    wgmma_commit();
}

template <int kTile>
PACE_DEVICE void multiply(const TiledArgs& args,
                          const Place& place,
                          RowMajorWeights<kTile, Shape<kTile>::kThreads>& copies,
                          SliceSums<kTile>& sums) {
    constexpr int kBytes = Shape<kTile>::kStageBytes;
    unsigned char* const ring = shared_memory<unsigned char>(0);
    StageRows<kTile> rows{args.call, place};
    rows.load(0, 0);
    rows.load(1, 1);
    rows.store(ring, 0);
    rows.load(2, 0);
    StageWeights weights[2];
    for (int first = 0; first < place.stages; first += 2) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int stage = first + i;
            if (stage >= place.stages) break;
            wait_copies<kAhead - 1>();
            publish_for_wgmma();
            sync_block();
            unsigned char* const stage_at = ring + stage % kStages * kBytes;
            weights[i].load(stage_at);
            multiply_stage<kTile>(args, place, stage, stage_at, weights[i], sums);
            // While they run.
            const int far = stage + kAhead;
            copies.copy(far, ring + far % kStages * kBytes);
            commit_copies();  // also of nothing: they are counted
            rows.store(ring + (stage + 1) % kStages * kBytes, 1 - i);
            rows.load(stage + 3, 1 - i);
            wgmma_wait<1>();
        }
    }
    wgmma_wait<0>();
    wait_copies<0>();
    sync_block();
}

template <int kTile>
PACE_DEVICE void share_totals(const float (&totals)[Shape<kTile>::kSums], float* results) {
    const int output = warp() * kTileOutputs + lane() / 4;
#pragma unroll
    for (int i = 0; i < Shape<kTile>::kSums; ++i) {
        const int row = i / 4 * 8 + lane() % 4 * 2 + i % 2;
        results[row * result_floats(kTile) + output + i / 2 % 2 * 8] = totals[i];
    }
}

template <int kTile>
PACE_KERNEL void gemm_tiled_wgmma(TiledArgs args) {
    using S = Shape<kTile>;
    unsigned char* const ring = shared_memory<unsigned char>(0);
    Place place = place_of<WeightType::BF16, kTile>(args.call);
    // No kernel writes weights; rows are the output of the kernel before.
    RowMajorWeights<kTile, S::kThreads> copies{args.call.weights, place};
#pragma unroll
    for (int stage = 0; stage < kAhead; ++stage) {
        copies.copy(stage, ring + stage * S::kStageBytes);
        commit_copies();
    }
    wait_for_previous();
    place.rows = rows_of_call(args.call, shared_memory<int>(kStages * S::kStageBytes));
    if (place.first_row >= place.rows) {  // a batch that was stopped has none
        wait_copies<0>();
        return;
    }
    SliceSums<kTile> sums{args, place};
    multiply<kTile>(args, place, copies, sums);
    let_next_start();
    float* const results = shared_memory<float>(0);
    share_totals<kTile>(sums.totals, results);
    finish_square<kTile, S::kThreads>(args.call, place, results);
}

template <int kTile>
void launch_square(Stream& stream, const GemmArgs& args, int rows) {
    TiledArgs tiled;
    tiled.call = args;
    tiled.slices = slices_of(steps_of(WeightType::BF16, args.weights.inputs));
    LaunchShape shape;
    shape.blocks_x = divided_up(rows, kTile);
    shape.blocks_y = divided_up(args.weights.tiles(), kTile / kTileOutputs);
    shape.threads = Shape<kTile>::kThreads;
    shape.shared_bytes = Shape<kTile>::kSharedBytes;
    shape.overlaps_previous = true;
    launch(stream, shape, gemm_tiled_wgmma<kTile>, tiled);
}

}  // namespace

bool has_wgmma(const DeviceInfo& device) {
#ifdef PACELINE_CODE_OF_90A
    return device.capability == 90;
#else
    (void)device;
    return false;
#endif
}

void launch_gemm_tiled_wgmma(Stream& stream,
                             const GemmArgs& args,
                             const GemmChoice& choice,
                             int rows) {
    if (args.weights.type != WeightType::BF16)
        throw DeviceError("a product by wgmma: of bf16 weights alone");
    if (choice.tile == kLargeTile) return launch_square<kLargeTile>(stream, args, rows);
    launch_square<kSmallTile>(stream, args, rows);
}

}  // namespace paceline::cuda

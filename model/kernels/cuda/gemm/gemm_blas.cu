// Products by cuBLAS, and the kernel `finish` that does what is fused after our own
// (gemm_blas.hpp).
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm/gemm_blas.hpp"
#include "model/kernels/cuda/gemm/gemm_finish.cuh"
#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/rows.hpp"

namespace paceline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTiles = kThreads / kTileOutputs;  // of a block at once
constexpr int kPasses = 4;                       // for each norm factor, which every warp sums up

struct FinishArgs {
    Finish finish;
    const float* y = nullptr;  // [rows][y_stride]: outputs, of a paired matrix gates and then ups
    int y_stride = 0;
    int outputs = 0;  // of one of the two if paired
    int tiles = 0;
    bool paired = false;
    const std::int32_t* rows = nullptr;
};

/// A row a block, and kTiles * kPasses of its tiles.
PACE_KERNEL void finish(FinishArgs args) {
    wait_for_previous();
    let_next_start();
    const int row = block_x();
    // Another stream may be setting it to 0: all lanes of a warp take what the first one saw.
    if (row >= shuffle(*args.rows, 0)) return;
    const float factor = norm_factor(args.finish.norm, row);
    const float* y =
        args.y + static_cast<std::size_t>(row) * static_cast<std::size_t>(args.y_stride);
    const int o = thread_index() % kTileOutputs;
    for (int pass = 0; pass < kPasses; ++pass) {
        const int first = (block_y() * kPasses + pass) * kTiles;
        if (first >= args.tiles) return;
        const int tile = first + thread_index() / kTileOutputs;
        const int output = args.paired ? 8 * tile + o % 8 : kTileOutputs * tile + o;
        const bool there = output < args.outputs;
        const int column = args.paired && o >= 8 ? args.outputs + output : output;
        finish_output(args.finish, tile, o, row, there ? y[column] * factor : 0.0f, args.outputs,
                      there);
    }
}

void multiply(Blas& blas, const GemmArgs& args, int rows, float* y, int y_stride) {
    const DeviceMatrix& weights = args.weights;
    BlasArgs product;
    product.weights = weights.values;
    product.weights_stride = weights.stride;
    product.x = args.x;
    product.x_stride = args.x_stride;
    product.y = y;
    product.y_stride = y_stride;
    product.rows = rows;
    product.outputs = weights.outputs;
    product.inputs = weights.inputs;
    if (!weights.paired) return blas.multiply(product);
    const auto* behind =
        static_cast<const std::uint16_t*>(weights.values) +
        static_cast<std::size_t>(weights.outputs) * static_cast<std::size_t>(weights.stride);
    if (weights.second == behind) {
        product.outputs = 2 * weights.outputs;
        return blas.multiply(product);
    }
    blas.multiply(product);
    product.weights = weights.second;
    product.y = y + weights.outputs;
    blas.multiply(product);
}

}  // namespace

void launch_gemm_blas(Stream& stream, Blas& blas, const GemmArgs& args, int rows, float* scratch) {
    if (!blas_takes(args.weights)) throw DeviceError("a product by cuBLAS: rows of bf16 alone");
    FinishArgs behind;
    behind.finish = args.finish;
    behind.outputs = args.weights.outputs;
    behind.tiles = args.weights.tiles();
    behind.paired = args.weights.paired;
    behind.rows = args.rows;
    RowNorm& norm = behind.finish.norm;
    const bool store = args.finish.kind == FinishKind::Store;
    behind.y = store ? args.finish.out : scratch;
    behind.y_stride = store ? args.finish.out_stride : blas_floats(args.weights);
    multiply(blas, args, rows, store ? args.finish.out : scratch, behind.y_stride);
    if (store && norm.squares == nullptr) return;

    float* const factors = norm.factors;
    norm.factors = nullptr;
    if (norm.squares != nullptr && factors != nullptr) {
        if (!norm.ready) launch_norm_factors(stream, {norm, args.rows, factors}, rows);
        norm.factors = factors;
    }
    LaunchShape shape;
    shape.blocks_x = rows;
    shape.blocks_y = (behind.tiles + kTiles * kPasses - 1) / (kTiles * kPasses);
    shape.threads = kThreads;
    shape.overlaps_previous = true;
    launch(stream, shape, finish, behind);
}

}  // namespace paceline::cuda

// Matrix products of a batch: y[row] = W x[row], and what is done with y at once.
//
//     batch   few rows: limited by the bandwidth of memory (gemm_batch.cuh)
//     tiled   a prefill's many rows: limited by arithmetic (gemm_tiled.cuh; gemm_tiled_wgmma.cu
//             where wgmma is)
//
// Row-invariant, across both: the bits of a row's y depend on W and that row's x alone. Inputs are
// summed in steps of step_inputs() in ascending order within a slice, the slices of a matrix in
// ascending order; how many slices there are follows from the number of inputs. So how a product is
// spread over the device (gemm_choice.hpp) is free, and so is how a matrix's outputs are shared
// among devices: each of them multiplies whole rows of W. Rows are padded to tiles of kTileRows.
//
// Weights are read straight from where the loader put them, and begin to arrive before the kernel
// in front has ended. What follows a product is fused after it (Finish): the norm in front of a
// product is a factor per row (from the sums of squares that whoever wrote the row left), so no
// kernel of its own touches a row between two products.
//
// Plain structs of device pointers; the caller owns all memory. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kernels/cuda/runtime.hpp"
#include "model/weights/packed_type.hpp"

namespace paceline::cuda {

inline constexpr int kTileOutputs = 16;    // of a tensor-core product
inline constexpr int kTileRows = 8;        // of one
inline constexpr int kBatchRows = 64;      // that a block of the batch kernel has at most
inline constexpr int kGemmRowsMax = 1024;  // of a call
/// Devices that get what another one makes: the others of up to 8 that share a model.
inline constexpr int kOthersMax = 7;
// Up to so many rows each block sums up the norm of a row itself.
inline constexpr int kFusedNormRows = 16;

/// How weights lie in memory; the inputs of a product are floats for F32 and bf16 for the others.
///
///     F32, BF16   row-major [outputs][stride], as in a file: no packing on the way in
///     others      records of one tile and one step (gemm_records.hpp); F16 has no kernels here
using WeightType = PackedType;

[[nodiscard]] constexpr bool is_row_major(WeightType type) {
    return type == WeightType::F32 || type == WeightType::BF16;
}
/// Inputs of a step: what a warp multiplies between two looks at memory.
[[nodiscard]] constexpr int step_inputs(WeightType type) {
    return is_row_major(type) || type == WeightType::Int8 ? 32 : 64;
}
/// Bytes of one input of a product.
[[nodiscard]] constexpr std::size_t input_bytes(WeightType type) {
    return type == WeightType::F32 ? 4 : 2;
}
[[nodiscard]] constexpr int steps_of(WeightType type, int inputs) {
    return (inputs + step_inputs(type) - 1) / step_inputs(type);
}
/// Into how many slices a product's steps are cut: the warps of the batch kernel take one each.
/// Enough for their loads to hide each other's latency, few enough for each to be longer than its
/// begin and end.
[[nodiscard]] constexpr int slices_of(int steps) {
    return steps >= 32 ? 8 : steps >= 16 ? 4 : steps >= 8 ? 2 : 1;
}
/// Inputs of a row of x, in elements: whole steps, zeros after the last input.
[[nodiscard]] constexpr int padded_inputs(int inputs) {
    return (inputs + 63) / 64 * 64;
}
[[nodiscard]] constexpr int tiles_of(int outputs) {
    return (outputs + kTileOutputs - 1) / kTileOutputs;
}

/// A matrix on the device. A *paired* one is two of equal shape whose outputs are computed side by
/// side (gate and up): tile i holds outputs 8i .. 8i+7 of both.
struct DeviceMatrix {
    WeightType type = WeightType::BF16;
    const void* values = nullptr;  // [outputs][stride], or tiles of records (gemm_records.hpp)
    const void* second = nullptr;  // of a paired row-major one
    int outputs = 0;               // of one of the two if paired
    int inputs = 0;
    int stride = 0;  // elements of a row, row-major ones; a multiple of 32 and of 16 bytes
    bool paired = false;

    [[nodiscard]] constexpr int tiles() const {
        return paired ? (outputs + 7) / 8 : tiles_of(outputs);
    }
};

/// Whether the rows of its products are floats instead of bf16.
[[nodiscard]] constexpr bool takes_floats(const DeviceMatrix& matrix) {
    return matrix.type == WeightType::F32;
}

/// The factor 1 / rms of each row, from sums of squares; none if `squares` is nullptr.
struct RowNorm {
    const float* squares = nullptr;  // [rows][count]
    int count = 0;                   // one for each tile of 16 inputs
    int dim = 0;
    float epsilon = 0.0f;
    // Scratch, [rows]: where products of many rows have the factors put once for all blocks.
    // nullptr: each block makes its own.
    float* factors = nullptr;
    bool ready = false;  // an earlier product of the same rows and norm has written `factors`
};

/// A row made ready for the next product: row x weights, rounded, and its sums of squares.
struct NextInput {
    const float* weights = nullptr;  // of the norm in front of that product; nullptr: ones
    void* x = nullptr;               // [rows][stride]: bf16, or float where `wide`
    float* squares = nullptr;        // [rows][tiles of 16]
    int stride = 0;
    bool wide = false;
    // As many places in the memory of other devices, which get the same: of each x and squares.
    int others = 0;
    void* other_x[kOthersMax] = {};
    float* other_squares[kOthersMax] = {};
};

enum class FinishKind : std::uint8_t {
    Store,     // out[row][o] = y
    Residual,  // hidden[row] += y, and the row is made ready for what comes next
    Input,     // y is made ready for the next product
    Gated,     // of a paired matrix: silu(gate) * up is the next product's input
    GatedBy,   // of `up` alone: the same with the gate from out[row][o], which a Store has written
};

/// What becomes of y = norm factor * (W x).
struct Finish {
    FinishKind kind = FinishKind::Store;
    RowNorm norm;
    // Store, GatedBy: [rows][out_stride]; Residual: hidden [call's rows][out_stride]
    float* out = nullptr;
    int out_stride = 0;
    float* out_also = nullptr;  // Residual: gets the same as `out`, on another device; or nullptr
    const std::int32_t* row_index = nullptr;  // Residual: the place of each row in `out`
    NextInput next;
};

struct GemmArgs {
    DeviceMatrix weights;
    const void* x = nullptr;             // [rows][x_stride]
    int x_stride = 0;                    // elements; at least padded_inputs(weights.inputs)
    const std::int32_t* rows = nullptr;  // how many, in device memory; at most the launch's
    Finish finish;
};

/// How a product is spread over the device. Changes no bit of it.
struct GemmLaunch {
    int rows = 1;        // at most, 1 .. kGemmRowsMax
    int processors = 1;  // of the device
    bool wgmma = false;  // the device has it: has_wgmma()
};

/// Whether this build has code for the device's wgmma.
[[nodiscard]] bool has_wgmma(const DeviceInfo& device);

/// Puts the product for up to `how.rows` rows into the stream. Throws DeviceError if a value of
/// `how` is not allowed.
void launch_gemm(Stream& stream, const GemmArgs& args, const GemmLaunch& how);

}  // namespace paceline::cuda

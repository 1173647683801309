// What an EAGLE draft (model/eagle_spec.hpp) does beside its layer: two rows side by side as the
// input of a product, and outputs into the places of features.
//
// One block a row; a row's bits depend on that row alone. Plain structs of device pointers; the
// caller owns all memory. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline::cuda {

struct SideBySideArgs {
    const float* left = nullptr;  // [rows][left_width]
    int left_width = 0;
    const float* right = nullptr;          // [places][right_width]
    int right_width = 0;                   // may be 0
    const std::int32_t* places = nullptr;  // by row: where its right part lies; negative: zeros
    const std::int32_t* rows = nullptr;
    // The input of the product, zeros after its last number: bf16, or float where `wide`.
    void* x = nullptr;  // [rows][stride]
    int stride = 0;     // at least left_width + right_width
    bool wide = false;
};
/// x[row] = [left[row] ; right[places[row]]].
void launch_side_by_side(Stream& stream, const SideBySideArgs& args, int rows_max);

struct PutRowsArgs {
    const float* from = nullptr;           // [rows][stride]
    const std::int32_t* places = nullptr;  // by row: where it goes; negative: nowhere
    const std::int32_t* rows = nullptr;
    int stride = 0;       // of rows and of places
    int columns = 0;      // of a row that are copied, from `from` and `to` on; up to stride
    float* to = nullptr;  // [places][stride]
    // As many places in the memory of other devices, which get the same as `to`.
    int others = 0;
    float* other_to[kOthersMax] = {};
};
/// to[places[row]] = from[row]. No place is there twice.
void launch_put_rows(Stream& stream, const PutRowsArgs& args, int rows_max);

}  // namespace paceline::cuda

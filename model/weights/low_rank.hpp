// LowRank: what a LoRA adds to one weight matrix, W' = W + scale * B A (lora.hpp).
//
// Rows and columns are those of the file's tensor. Owns its numbers, which the reader has checked
// to be finite. Immutable: dequantize_row() adds its rows, from several threads.
#pragma once

#include <vector>

namespace paceline {

struct LowRank {
    int rank = 0;
    float scale = 0.0F;    // alpha / rank
    std::vector<float> a;  // [rank, cols]
    std::vector<float> b;  // [rows, rank]
};

}  // namespace paceline

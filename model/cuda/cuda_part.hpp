// CudaPart: which part of a segment's matrices one device of a group has.
//
// Every matrix is shared by its outputs: a device multiplies some of its rows, with all inputs, so
// each output is computed from the same numbers in the same order as on one device. Shares are
// whole units and differ by one unit at most; where there are fewer units than devices some have
// nothing.
//
//     unit           what
//     KV head        q, k, v and the cache: a KV head with its query heads
//     16 outputs     gate, up, o, down, an exit head's transform
//     16 tokens      embedding, heads; of a short list 16 of its tokens
//
// Pure.
#pragma once

#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline {

/// Some of the things that are shared, in their order.
struct CudaShare {
    int first = 0;
    int count = 0;
};

struct CudaPart {
    int rank = 0;   // of the device
    int ranks = 1;  // devices

    [[nodiscard]] constexpr bool is_first() const { return rank == 0; }
    [[nodiscard]] constexpr CudaShare of(int all, int unit) const {
        const int units = (all + unit - 1) / unit;
        const auto begin = [&](int of_rank) {
            const int at = units * of_rank / ranks * unit;
            return at < all ? at : all;
        };
        const int first = begin(rank);
        return {first, begin(rank + 1) - first};
    }
    /// Outputs or tokens.
    [[nodiscard]] constexpr CudaShare of_outputs(int all) const {
        return of(all, cuda::kTileOutputs);
    }
    [[nodiscard]] constexpr CudaShare of_kv_heads(int all) const { return of(all, 1); }
};

}  // namespace paceline

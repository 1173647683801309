// Scratch memory of a sampler: reused from row to row, so that a draw allocates nothing.
//
// One per thread, for rows of any vocabulary (it grows to the largest). Holds nothing between
// two calls: results do not depend on what was sampled with it before. The members belong to
// the files of this folder; others only make one and pass it on.
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/base/ids.hpp"
#include "model/sampling/row_kernels.hpp"

namespace paceline {

/// A token in the order of the filters: highest logit first, lowest id among equals. `key` is
/// that order as an integer, greater keys first.
struct RankedToken {
    std::uint64_t key;
    std::uint32_t weight;
};

class SamplerScratch {
public:
    SamplerScratch() : SamplerScratch(row_kernels()) {}
    /// With the kernels of one instruction set, for tests: the bits are the same with all.
    explicit SamplerScratch(const RowKernels& row_kernels_to_use) : kernels{&row_kernels_to_use} {}

    /// Room for rows of `vocab` tokens.
    void fit(int vocab);

    const RowKernels* kernels;
    std::vector<float> group_max;        // [groups]
    std::vector<float> race;             // [groups]
    std::vector<float> bound;            // [groups]
    std::vector<std::uint32_t> weights;  // [vocab], of a row that top-p looks at
    std::vector<TokenId> collected;      // [vocab], tokens that a filter looks at
    std::vector<std::uint32_t> counts;   // [vocab], all 0 between two calls
    std::vector<TokenId> seen;           // distinct tokens of the penalty window
    std::vector<RankedToken> ranked;
    std::vector<float> heap;    // the k largest group maxima
    std::vector<float> scores;  // [vocab] of candidates(), which alone makes room for it
};

}  // namespace paceline

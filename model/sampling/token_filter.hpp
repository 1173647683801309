// top-k, top-p and min-p: which tokens may be drawn.
//
// Tokens are ranked by logit (after penalties), highest first, lowest id among equals. Every
// filter keeps a beginning of that ranking, so all of them together are one cut, and no filter
// needs the whole row sorted:
//
//     top-k   the first k
//     top-p   the fewest whose weights reach top_p of the weight of all tokens kept by top-k
//     min-p   those with z >= log(min_p), z = (logit - max) / temperature
//
// A weight is exp(z) in units of 2^-30, cut off to an integer (fixed_math.hpp). Integer sums do
// not depend on their order: the partial selection here gives exactly the set of the sorted
// definition, on every instruction set. Tokens below 2^-30 of the likeliest one weigh nothing.
#pragma once

#include <limits>
#include <span>

#include "model/sampling/sampling.hpp"

namespace paceline {

/// A row and what the fold kernel found out about it.
struct FoldedRow {
    std::span<const float> logits;     // [vocab]
    std::span<const float> group_max;  // [groups]
    float max_logit;                   // finite
    float inverse_temperature;
};

/// A token is kept if z >= z_min and it does not rank after (logit_min, last_id).
struct Cutoff {
    float z_min = -std::numeric_limits<float>::infinity();
    float logit_min = -std::numeric_limits<float>::infinity();
    TokenId last_id = std::numeric_limits<TokenId>::max();
};

/// At least the token with the highest rank is kept.
[[nodiscard]] Cutoff find_cutoff(const FoldedRow& row,
                                 const SamplingParams& params,
                                 SamplerScratch& scratch);

}  // namespace paceline

// The reference implementation of sample(): every definition spelled out, nothing skipped.
//
// Draws the noise of every token, sorts the whole row, builds its own penalty table. For tests:
// sample() must return the same token, whatever the row.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/sampling/candidates.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

/// As sample(), without changing `logits`.
[[nodiscard]] std::optional<TokenId> reference_sample(std::span<const float> logits,
                                                      Position position,
                                                      const SeenTokens& seen,
                                                      const SamplingParams& params);

/// As candidates(), without changing `logits`.
[[nodiscard]] std::vector<Candidate> reference_candidates(std::span<const float> logits,
                                                          Position position,
                                                          const SeenTokens& seen,
                                                          const SamplingParams& params,
                                                          int count);

/// As probabilities(), in double and without changing `logits`; empty where that is false.
[[nodiscard]] std::vector<double> reference_probabilities(std::span<const float> logits,
                                                          const SeenTokens& seen,
                                                          const SamplingParams& params);

/// The tokens that the filters keep of `logits` (after penalties; finite or -inf), ranked.
[[nodiscard]] std::vector<TokenId> reference_kept(std::span<const float> logits,
                                                  const SamplingParams& params);

}  // namespace paceline

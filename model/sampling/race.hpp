// Prepares the draw of one row: group maxima, finite logits, and the cut of the filters.
//
// Shared by sample(), candidates() and probabilities(). For the files of this folder.
#pragma once

#include <optional>
#include <span>

#include "model/sampling/sampling.hpp"

namespace paceline {

/// Groups of a row of `vocab` tokens (noise_layout.hpp).
[[nodiscard]] int groups_of(int vocab);

/// Folds `logits`, which have their bias and penalties, and finds the cut. `params` are not
/// greedy. +inf is replaced by the largest finite number in place. Nothing if no token is left.
/// What it returns points into `logits` and `scratch`.
[[nodiscard]] std::optional<DrawArgs> prepare_race(std::span<float> logits,
                                                   Position position,
                                                   const SamplingParams& params,
                                                   SamplerScratch& scratch);

/// +inf becomes the largest finite number.
void make_finite(std::span<float> logits);

}  // namespace paceline

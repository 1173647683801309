// Logit bias and the penalties on tokens that were seen, applied to the raw logits of one row.
//
// In this order, each on what the one before left:
//     logit += bias
//     logit  = logit > 0 ? logit / repetition : logit * repetition      if the token was seen
//     logit -= frequency * times seen + presence                        if the token was seen
//
// "Seen" is the last `penalty_window` tokens of prompt, committed text and path together, without
// those before position `penalty_begin`. The cost is that of the window: no row copies the prompt.
#pragma once

#include <span>

#include "model/sampling/sampling.hpp"

namespace paceline {

/// `logits` is [vocab]. Token ids outside the vocabulary abort.
void apply_bias_and_penalties(std::span<float> logits,
                              const SeenTokens& seen,
                              const SamplingParams& params,
                              SamplerScratch& scratch);

}  // namespace paceline

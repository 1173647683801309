// Candidates: the tokens that a draft or an early exit predicts, best first.
//
// They predict the result of sample() on the target's logits. The best prediction uses the same
// parameters and the same noise of the position: the first candidate is sample() of the draft's logits, the
// others have the next highest scores (the runners-up).
// Pure; not thread-safe (the scratch).
#pragma once

#include <span>
#include <vector>

#include "model/sampling/sampling.hpp"

namespace paceline {

struct Candidate {
    TokenId token = 0;
    float log_prob = 0.0f;  // log softmax of the race's scores over the kept tokens: how far ahead
                            // it is, which for greedy is how sure the model is. <= 0
};

/// Tokens whose score is further after the best do not count in log_prob of a race with noise:
/// it is an estimate about a candidate, and the noise of a whole row costs ten times that of its best.
inline constexpr float kRivalMargin = 5.0f;

/// The `count` (>= 1) best of the race at `position` for these logits, at most; ties to the lowest
/// id, so that the first is what sample() returns. Greedy rows race without noise, their log_prob is
/// that of temperature 1. Tokens that the filters remove, or whose logit is -inf or NaN, are not
/// among them. Parameters as those of sample().
[[nodiscard]] std::vector<Candidate> candidates(std::span<float> logits,
                                                Position position,
                                                const SeenTokens& seen,
                                                const SamplingParams& params,
                                                int count,
                                                SamplerScratch& scratch);

/// The same for a head that knows only `tokens` (ascending): `logits` are theirs, in that order, and
/// all others of the vocabulary cannot be drawn. `row` is [vocab], memory for parameters that need
/// the whole row; greedy without penalties and bias reads the list alone.
[[nodiscard]] std::vector<Candidate> listed_candidates(std::span<float> logits,
                                                       std::span<const TokenId> tokens,
                                                       std::span<float> row,
                                                       Position position,
                                                       const SeenTokens& seen,
                                                       const SamplingParams& params,
                                                       int count,
                                                       SamplerScratch& scratch);

/// p of every token after penalties, bias, temperature and filters: what sample() draws from.
/// `probabilities` is [vocab]; they sum to 1 up to their rounding to float. Greedy: 1 for the
/// token it takes. False if no token can be drawn.
[[nodiscard]] bool probabilities(std::span<float> logits,
                                 const SeenTokens& seen,
                                 const SamplingParams& params,
                                 std::span<float> probabilities,
                                 SamplerScratch& scratch);

struct TokenProbability {
    TokenId token = 0;
    float p = 0.0f;
};

/// The `count` (>= 1) tokens of the largest probabilities(), at most, largest first, ties to the lowest
/// id; none of probability 0. Their sum is not 1 where there are more. Parameters not greedy.
[[nodiscard]] std::vector<TokenProbability> most_probable(std::span<float> logits,
                                                          const SeenTokens& seen,
                                                          const SamplingParams& params,
                                                          int count,
                                                          SamplerScratch& scratch);

}  // namespace paceline

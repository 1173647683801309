// Candidates: the tokens that a draft or an early exit predicts, best first.
//
// A candidate predicts the token that sample() will draw from the target's logits at a position.
// sample() takes the token with the highest score: its logit, filtered and scaled by the sampling
// parameters, plus noise that depends on seed and position alone. Drafts therefore score their own
// logits with the same parameters and the same noise. The first candidate is the token that
// sample() draws from the draft's logits; the others follow by score.
// Pure; not thread-safe, because of the scratch memory.
#pragma once

#include <span>
#include <vector>

#include "model/sampling/sampling.hpp"

namespace paceline {

struct Candidate {
    TokenId token = 0;
    /// Log softmax of the scores over the tokens that the filters keep, <= 0; greedy: the model's
    /// log probability.
    float log_prob = 0.0f;
};

/// Scores with noise: tokens whose score is lower than the best by more than this are left out of
/// the sum in log_prob. Noise for a whole row would take ten times the time of noise for its best
/// tokens, and log_prob is only an estimate of whether the candidate is right.
inline constexpr float kRivalMargin = 5.0f;

/// The tokens with the highest scores at `position`, at most `count` (>= 1); of equal scores the
/// lowest id first, so that the first candidate is what sample() returns. Greedy: without noise,
/// and log_prob is that of temperature 1. Tokens that the filters remove, or whose logit is -inf or
/// NaN, are never candidates. Parameters as those of sample().
[[nodiscard]] std::vector<Candidate> candidates(std::span<float> logits,
                                                Position position,
                                                const SeenTokens& seen,
                                                const SamplingParams& params,
                                                int count,
                                                SamplerScratch& scratch);

/// The same for a head that knows only `tokens` (ascending): `logits` are theirs, in that order,
/// and all others of the vocabulary cannot be drawn. `row` is [vocab], memory for parameters that
/// need the whole row; greedy without penalties and bias reads the list alone.
[[nodiscard]] std::vector<Candidate> listed_candidates(std::span<float> logits,
                                                       std::span<const TokenId> tokens,
                                                       std::span<float> row,
                                                       Position position,
                                                       const SeenTokens& seen,
                                                       const SamplingParams& params,
                                                       int count,
                                                       SamplerScratch& scratch);

/// The likeliest tokens of a row of logits at temperature 1, best first, and what gives the log
/// probability of any other.
struct LikeliestTokens {
    std::vector<Candidate> tokens = {};
    float largest = 0.0f;    // logit; -inf: no token can be drawn
    float log_total = 0.0f;  // log of the sum of exp(logit - largest)
};

/// At most `count` (>= 1), ties to the lowest id; none whose logit is -inf or NaN. `logits` is
/// changed where it is +inf.
[[nodiscard]] LikeliestTokens likeliest_tokens(std::span<float> logits,
                                               int count,
                                               SamplerScratch& scratch);
/// <= 0; -inf for a logit that is NaN or -inf.
[[nodiscard]] float log_prob_of(float logit, const LikeliestTokens& row);

/// p of every token after penalties, bias, `mask`, temperature and filters: what sample() draws
/// from. `probabilities` is [vocab]; they sum to 1 up to their rounding to float. Greedy: 1 for the
/// token it takes. False if no token can be drawn.
[[nodiscard]] bool probabilities(std::span<float> logits,
                                 const SeenTokens& seen,
                                 const SamplingParams& params,
                                 std::span<float> probabilities,
                                 SamplerScratch& scratch,
                                 const TokenMask* mask = nullptr);

struct TokenProbability {
    TokenId token = 0;
    float p = 0.0f;
};

/// The `count` (>= 1) tokens of the largest probabilities(), at most, largest first, ties to the
/// lowest id; none of probability 0. Their sum is not 1 where there are more. Parameters not
/// greedy.
[[nodiscard]] std::vector<TokenProbability> most_probable(std::span<float> logits,
                                                          const SeenTokens& seen,
                                                          const SamplingParams& params,
                                                          int count,
                                                          SamplerScratch& scratch);

}  // namespace paceline

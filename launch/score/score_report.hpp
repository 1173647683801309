// What `paceline score` and `run --logprobs` print: the log probabilities of a text's tokens.
//
// Pure functions. `ids` and `scores` are of the same tokens, in order.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "ipc/base/ids.hpp"
#include "model/sampling/token_scores.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline {

/// Of the tokens that are scored.
struct ScoreSum {
    std::size_t tokens = 0;
    double log_prob = 0.0;

    /// exp of the mean negative log probability; 1 without tokens.
    [[nodiscard]] double perplexity() const;
};
[[nodiscard]] ScoreSum sum_of(std::span<const TokenScores> scores);

/// A line for each token: its position, id, log probability, rank, text, and the most probable ones
/// with theirs. `first`: position of the first one.
[[nodiscard]] std::string score_table(const Tokenizer& tokenizer,
                                      std::size_t first,
                                      std::span<const TokenId> ids,
                                      std::span<const TokenScores> scores);

/// An object for each token: id, token, logprob and rank (null for one that is not scored), top.
[[nodiscard]] nlohmann::json score_json(const Tokenizer& tokenizer,
                                        std::span<const TokenId> ids,
                                        std::span<const TokenScores> scores);

}  // namespace paceline

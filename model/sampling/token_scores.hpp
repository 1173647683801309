// TokenScores: what a model thinks of a token of a text: its log probability, its rank, and the
// most probable tokens at its place. RowScores computes them from a row of logits.
//
//     RowScores row;
//     row.read(logits, top, scratch);       before sampling, which may change the logits
//     row.of(token)                         any token of the vocabulary
//
// Log softmax of the logits as the model gives them: before bias, penalties, temperature, filters
// and grammar. The bits are the same on all instruction sets, and for any division of a batch.
// RowScores owns a copy of the row. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

/// A token and its log probability, <= 0; -inf for one that the model excludes.
struct ScoredToken {
    TokenId token = 0;
    float log_prob = 0.0f;

    friend bool operator==(const ScoredToken&, const ScoredToken&) = default;
};

struct TokenScores {
    static constexpr std::int32_t kNotScored = -1;

    float log_prob = 0.0f;           // of the token
    std::int32_t rank = kNotScored;  // of the token, 0: the most probable; of equals the lowest id
    std::vector<ScoredToken> top = {};  // the most probable ones, best first

    [[nodiscard]] bool scored() const { return rank != kNotScored; }
    friend bool operator==(const TokenScores&, const TokenScores&) = default;
};

/// What a request wants to know of its tokens.
struct ScoreOptions {
    bool answer = false;   // each token of the answer
    bool prompt = false;   // each of the prompt but the first, which follows nothing
    std::int32_t top = 0;  // how many of the most probable tokens, 0 .. kTopScoresMax

    [[nodiscard]] bool any() const { return answer || prompt; }
    friend bool operator==(const ScoreOptions&, const ScoreOptions&) = default;
};

class RowScores {
public:
    /// `logits` [vocab]; `top` 0 .. kTopScoresMax. NaN counts as -inf, +inf as the largest finite
    /// number, as in sample().
    void read(std::span<const float> logits, std::int32_t top, SamplerScratch& scratch);
    /// Of the row that was read last. Precondition: `token` is of the vocabulary.
    [[nodiscard]] TokenScores of(TokenId token) const;

private:
    std::vector<float> logits_;
    LikeliestTokens row_;
};

}  // namespace paceline

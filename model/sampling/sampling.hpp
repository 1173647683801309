// Sampling: from a row of logits to one token, as a pure function of model, text, parameters
// and seed.
//
// The target's token is y = argmax over tokens of (log p + Gumbel(seed, position, token)), where
// p is what temperature, top-k, top-p, min-p, penalties and bias leave of the logits, and the
// noise comes from a counter-based generator: the draw of a position does not depend on what
// was drawn before, on which process draws, or on whether the position was guessed at first.
// Greedy is the case without noise. Ties break to the lowest id. A NaN logit counts as -inf.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

struct SamplingParams {
    float temperature = 0.0f;         // 0: greedy
    int top_k = 0;                    // 0: all
    float top_p = 1.0f;               // (0, 1]
    float min_p = 0.0f;               // [0, 1): keeps p >= min_p * max p
    float repetition_penalty = 1.0f;  // > 0; divides positive and multiplies negative logits of seen tokens
    float presence_penalty = 0.0f;    // subtracted once for a seen token
    float frequency_penalty = 0.0f;   // subtracted per occurrence
    int penalty_window = 64;          // how many of the last tokens count as seen; -1: all
    std::vector<std::pair<TokenId, float>> logit_bias;  // added to the logit, sorted by id
    std::uint64_t seed = 0;

    [[nodiscard]] bool greedy() const { return temperature <= 0.0f; }
    [[nodiscard]] bool has_penalties() const {
        return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
    }
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const SamplingParams& params, int vocab_size);

/// The tokens before the one to draw, in order: prompt and committed tokens, then the row's path
/// in the tree. Two spans, so that no row has to copy the prompt.
struct SeenTokens {
    std::span<const TokenId> committed;
    std::span<const TokenId> path;
};

/// Scratch memory of a sampler; one per thread, reused from row to row.
class SamplerScratch;

/// Draws the target's token for the sequence position `position` (that of the token drawn).
/// `logits` is [vocab]; it is changed in place when penalties or bias apply. Returns nothing if
/// every logit is NaN or -inf.
[[nodiscard]] std::optional<TokenId> sample(std::span<float> logits,
                                            Position position,
                                            const SeenTokens& seen,
                                            const SamplingParams& params,
                                            SamplerScratch& scratch);

}  // namespace paceline

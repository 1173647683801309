// Sampling: from a row of logits to one token, as a pure function of model, text, parameters
// and seed.
//
// The target's token is y = argmax over tokens of (log p + Gumbel(seed, position, token)), where
// p results from the chain below, and the noise comes from a counter-based
// generator: the draw of a position does not depend on earlier draws, on the process, or on whether
// a candidate was proposed. Greedy is the case without noise.
//
//     raw logits
//       -> logit bias, repetition penalty, frequency and presence penalty     (penalties.hpp)
//       -> -inf for tokens that a grammar does not allow                      (token_mask.hpp)
//       -> temperature -> top-k -> top-p of what is left -> min-p             (token_filter.hpp)
//       -> argmax of z + noise over the kept tokens, z = (logit - max) / temperature
//
// Ties break to the lowest id everywhere. A NaN logit counts as -inf, +inf as the largest finite
// number. The bits of a result are the same on all instruction sets. docs/sampling.md has the
// definitions, and why temperature stands where it does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/sampling/sampler_scratch.hpp"
#include "model/sampling/token_mask.hpp"

namespace paceline {

struct SamplingParams {
    float temperature = 0.0f;  // 0: greedy; otherwise [kTemperatureMin, kTemperatureMax]
    int top_k = 0;             // 0: all
    float top_p = 1.0f;        // (0, 1]
    float min_p = 0.0f;        // 0 or [1e-9, 1): keeps p >= min_p * max p
    /// Divides positive and multiplies negative logits of seen tokens; at least
    /// kRepetitionPenaltyMin.
    float repetition_penalty = 1.0f;
    float presence_penalty = 0.0f;   // subtracted once for a seen token
    float frequency_penalty = 0.0f;  // subtracted per occurrence
    int penalty_window = 64;         // how many of the last tokens count as seen; -1: all
    Position penalty_begin = 0;      // tokens before this position do not: a prompt's length, or 0
    std::vector<std::pair<TokenId, float>> logit_bias =
        {};  // added to the logit, sorted by id; -inf bans
    std::uint64_t seed = 0;

    [[nodiscard]] bool greedy() const { return temperature <= 0.0f; }
    [[nodiscard]] bool has_penalties() const {
        return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
    }
};

inline constexpr float kTemperatureMin = 1e-6f;  // below, a row is as good as greedy: say 0
inline constexpr float kTemperatureMax = 1e6f;
inline constexpr float kMinPMin = 1e-9f;
inline constexpr double kRepetitionPenaltyMin = 1e-3;  // double: the 0.001 that a user types is it
inline constexpr float kPenaltyMax = 1e3f;             // of each penalty, with either sign

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const SamplingParams& params, int vocab_size);

/// The tokens before the one to draw, in order: prompt and committed tokens, then the row's path
/// in the tree. Two spans, so that no row has to copy the prompt. All ids are of the vocabulary.
struct SeenTokens {
    std::span<const TokenId> committed;
    std::span<const TokenId> path;
};

/// Draws the target's token for the sequence position `position` (that of the token drawn; >= 0).
/// `logits` is [vocab]; it is changed in place when penalties, bias or a mask apply, or where it is
/// +inf. `params` has passed validate(). Returns nothing if every logit is NaN or -inf.
[[nodiscard]] std::optional<TokenId> sample(std::span<float> logits,
                                            Position position,
                                            const SeenTokens& seen,
                                            const SamplingParams& params,
                                            SamplerScratch& scratch,
                                            const TokenMask* mask = nullptr);

/// The lowest id among the largest logits: sample() at temperature 0 without penalties or bias.
[[nodiscard]] std::optional<TokenId> argmax(std::span<const float> logits, SamplerScratch& scratch);

}  // namespace paceline

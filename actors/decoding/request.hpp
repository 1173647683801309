// Request: what a client wants decoded, in tokens: a prompt, how its answer is drawn, and its
// limits. All layers of the program use this type; those above add fields of their own:
//
//     TextRequest    (launch/session)   + stop strings                 one answer as text
//     AnswerOrder    (conductor)        + callbacks                    one answer of a pipeline
//     BatchParams    (answer_batches)   + max_running, what is kept    many answers on one backend
//     BeginPayload   (begin_payload)    + what is decoded already      an attempt, at every stage
//
// How candidates are proposed and accepted is said by the pipeline's configuration; a client can
// only ask for less of it.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/decoding/finish_rule.hpp"
#include "actors/decoding/speculation_limits.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/grammar/grammar.hpp"
#include "model/grammar/grammar_spec.hpp"
#include "model/sampling/sampling.hpp"
#include "model/sampling/token_scores.hpp"

namespace paceline {

inline constexpr std::uint32_t kTextTokensMax = 1U << 22;
inline constexpr std::uint32_t kEndTokensMax = 64;
inline constexpr std::uint32_t kLogitBiasMax = 1U << 16;
inline constexpr std::uint32_t kCacheSaltMax = 256;

struct Request {
    std::vector<TokenId> text = {};  // the prompt
    SamplingParams sampling = {};
    std::vector<TokenId> end_tokens = {};
    std::int32_t max_tokens = kUnlimitedTokens;  // of the answer, >= 1
    // Tokens that prompt and answer may have together; 0: as many as who decodes it has room for.
    Position context = 0;
    /// Only requests with the same salt share cached prefixes.
    std::string cache_salt = {};
    SpeculationLimits speculation = {};
    /// Log probabilities of tokens. Those of the prompt need all of its rows: none is taken from
    /// the cache.
    ScoreOptions scores = {};
    /// The language that the answer belongs to; it has end tokens then.
    GrammarSpec grammar = {};
    /// What that is compiled to: before anything is decoded.
    CompiledGrammarPtr compiled = {};

    /// Whether the answer's tokens are drawn from logits in host memory, where the rest of what is
    /// wanted is computed from them.
    [[nodiscard]] bool needs_logits() const { return scores.answer || compiled != nullptr; }
    /// Of an answer that begins after `text`.
    [[nodiscard]] FinishRule finish_rule() const {
        return {.end_tokens = end_tokens,
                .max_tokens = max_tokens,
                .answer_begin = static_cast<Position>(text.size()),
                .context = context};
    }
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const Request& request, int vocab_size, std::int32_t kv_slots);

}  // namespace paceline

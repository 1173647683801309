// Request: what is to be decoded, in tokens. All layers of the program use this type; those above add
// fields of their own:
//
//     TextRequest   (launch/session)   + stop strings               one answer as text
//     AnswerOrder   (conductor)        + callbacks, the turn before one answer of a pipeline
//     BatchParams   (answer_batches)     + seats, what is kept        many answers on one backend
//     control::Begin                   encode_request() as its payload, to every stage
//
// decode_request() treats its input as untrusted: every count is bounded, and checked against the
// remaining bytes before memory is allocated. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "actors/decoding/acceptance.hpp"
#include "actors/decoding/finish_rule.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

inline constexpr std::uint32_t kTextTokensMax = 1U << 22;
inline constexpr std::uint32_t kEndTokensMax = 64;
inline constexpr std::uint32_t kLogitBiasMax = 1U << 16;

struct Request {
    // The prompt, or what is appended to the text of the turn before. On a replay also what was
    // already committed.
    std::vector<TokenId> text = {};
    std::int32_t replayed = 0;  // trailing tokens of `text` that belong to the answer already
    std::int32_t reuse = 0;     // leading tokens of `text` whose keys and values the stages may
                                // still hold from the turn before (same id, attempt before)
    SamplingParams sampling = {};
    std::vector<TokenId> end_tokens = {};
    std::int32_t max_tokens = kUnlimitedTokens;  // of the answer, >= 1
    std::int32_t gamma = 8;                      // tokens to propose at once, 0 .. kGammaMax
    AcceptanceRule acceptance = AcceptanceRule::Coupled;
    Position context = 0;  // tokens that prompt and answer may have together

    [[nodiscard]] FinishRule finish_rule() const {
        return {.end_tokens = end_tokens,
                .max_tokens = max_tokens,
                .answer_begin = static_cast<Position>(text.size()) - replayed,
                .context = context};
    }
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const Request& request, int vocab_size, std::int32_t kv_slots);

[[nodiscard]] std::vector<std::byte> encode_request(const Request& request);

/// Errors: Protocol, naming the field whose count or place is wrong.
[[nodiscard]] Result<Request> decode_request(std::span<const std::byte> bytes);

}  // namespace paceline

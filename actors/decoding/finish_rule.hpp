// FinishRule: when an answer is over: one pure function for plain decoding and all methods.
//
// Plain decoding and every speculative batch ask the same rule after each token, in order, so an
// end token inside an accepted path ends the answer there, and nothing is committed after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/wire/finish_reason.hpp"

namespace paceline {

inline constexpr std::int32_t kUnlimitedTokens = -1;

struct FinishRule {
    std::vector<TokenId> end_tokens = {};        // in any order; usually one to four
    std::int32_t max_tokens = kUnlimitedTokens;  // of the answer, >= 1, or kUnlimitedTokens
    Position answer_begin = 0;                   // position of the answer's first token
    Position context = 0;                        // tokens that prompt and answer may have together

    /// Whether `token`, committed at `position`, is the answer's last. An end token wins over
    /// the count, the count over the context. The end token itself belongs to the answer.
    [[nodiscard]] FinishReason after(TokenId token, Position position) const {
        if (std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end()) {
            return FinishReason::EndToken;
        }
        if (max_tokens != kUnlimitedTokens && position - answer_begin + 1 >= max_tokens) {
            return FinishReason::MaxTokens;
        }
        return position + 1 >= context ? FinishReason::ContextFull : FinishReason::None;
    }

    /// How many more tokens can be committed when the next one stands at `position`.
    [[nodiscard]] std::int32_t room_at(Position position) const {
        const std::int32_t in_context = context - position;
        if (max_tokens == kUnlimitedTokens) return in_context;
        return std::min(in_context, max_tokens - (position - answer_begin));
    }
};

}  // namespace paceline

// The log probabilities of tokens as APIs write them.
//
//     chats         [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", ...}]}]
//     completions   {"tokens", "token_logprobs", "top_logprobs": [{token: logprob}], "text_offset"}
//
// A token that the model excludes has kExcludedLogProb: JSON has no infinity. Bytes that are no
// text are written as "bytes:\xe2\x80", so that two of them differ. Pure.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "ipc/base/ids.hpp"
#include "model/sampling/token_scores.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline::serve {

inline constexpr double kExcludedLogProb = -9999.0;

/// The `logprobs` of a choice, token by token. One thread.
class ChoiceScores {
public:
    ChoiceScores() = default;
    ChoiceScores(const ChoiceScores&) = delete;
    ChoiceScores& operator=(const ChoiceScores&) = delete;
    virtual ~ChoiceScores() = default;

    /// One that is not scored has null.
    virtual void add(TokenId token, const TokenScores& scores) = 0;
    /// What was added since the last call; empty() afterwards. Offsets go on.
    [[nodiscard]] virtual nlohmann::ordered_json take() = 0;
    [[nodiscard]] virtual bool empty() const = 0;
};

/// The tokenizer outlives them.
[[nodiscard]] std::unique_ptr<ChoiceScores> chat_choice_scores(const Tokenizer& tokenizer);
/// Offsets are in characters, from the begin of the text.
[[nodiscard]] std::unique_ptr<ChoiceScores> completion_choice_scores(const Tokenizer& tokenizer);

/// The text of a token, or "bytes:\x..".
[[nodiscard]] std::string token_label(const Tokenizer& tokenizer, TokenId token);

}  // namespace paceline::serve

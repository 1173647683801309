// The log probabilities of tokens as APIs write them.
//
//     chats         [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}]
//     completions   {"tokens", "token_logprobs", "top_logprobs": [{token: logprob}], "text_offset"}
//
// A token that the model excludes has kExcludedLogProb: JSON has no infinity. Bytes that are no text
// are written as "bytes:\xe2\x80", so that two of them differ. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "ipc/base/ids.hpp"
#include "model/sampling/token_scores.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline::serve {

inline constexpr double kExcludedLogProb = -9999.0;

/// One entry a token. Precondition: as many scores as tokens.
[[nodiscard]] nlohmann::ordered_json chat_scores_json(const Tokenizer& tokenizer,
                                                      std::span<const TokenId> tokens,
                                                      std::span<const TokenScores> scores);

/// The lists of completions, which grow token by token. Offsets are in characters, from the text's
/// begin. One thread.
class CompletionScores {
public:
    explicit CompletionScores(const Tokenizer& tokenizer) : tokenizer_{&tokenizer} {}

    /// One that is not scored has null.
    void add(TokenId token, const TokenScores& scores);
    /// The lists since the last call, which are empty afterwards; the offset goes on.
    [[nodiscard]] nlohmann::ordered_json take();
    [[nodiscard]] bool empty() const { return tokens_.empty(); }

private:
    using Json = nlohmann::ordered_json;

    const Tokenizer* tokenizer_;
    std::size_t offset_ = 0;
    Json tokens_ = Json::array();
    Json log_probs_ = Json::array();
    Json top_ = Json::array();
    Json offsets_ = Json::array();
};

/// The text of a token, or "bytes:\x..".
[[nodiscard]] std::string token_label(const Tokenizer& tokenizer, TokenId token);

}  // namespace paceline::serve

// TextScores: the log probabilities of the tokens that the text of an answer consists of, where
// tokens of thoughts and of calls have none.
//
//     scores.push(token, its scores)     in the order of the answer
//     scores.drop()                      what was pushed is of no text
//     scores.take(bytes)                 a text of so many bytes became certain: its tokens
//
// A text becomes certain some tokens after its first one: blanks, and what may be a call's tag, are
// held back. Tokens in front of it that it does not reach back to, of a tag for instance, are
// left out. The tokenizer outlives this object. One thread.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "ipc/base/ids.hpp"
#include "model/sampling/token_scores.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline::serve {

class TextScores {
public:
    explicit TextScores(const Tokenizer& tokenizer) : tokenizer_{tokenizer} {}

    void push(TokenId token, const TokenScores& scores) { pushed_.emplace_back(token, scores); }
    void drop() { pushed_.clear(); }
    /// A list of entries as chats have them (scores_json.hpp).
    [[nodiscard]] nlohmann::ordered_json take(std::size_t bytes);

private:
    const Tokenizer& tokenizer_;
    std::vector<std::pair<TokenId, TokenScores>> pushed_;
};

}  // namespace paceline::serve

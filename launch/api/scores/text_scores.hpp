// TextScores: the log probabilities of the tokens that the text of an answer consists of, where
// tokens of thoughts and of calls have none.
//
//     scores.push(token, its scores, n)  in the order of the answer; n: bytes that it added
//     scores.drop()                      what was pushed is of no text
//     scores.take(bytes, held)           a text of so many bytes became certain: its tokens
//
// A text becomes certain some tokens after its first one: blanks, and what may be a call's tag, are
// held back. Tokens in front of it that it does not reach back to, of a tag for instance, are left
// out; those of the bytes that are still held come with a later text. The tokenizer outlives this
// object. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include <nlohmann/json.hpp>

#include "ipc/base/ids.hpp"
#include "model/sampling/token_scores.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline::serve {

class TextScores {
public:
    explicit TextScores(const Tokenizer& tokenizer) : tokenizer_{tokenizer} {}

    void push(TokenId token, const TokenScores& scores, std::size_t bytes) {
        pushed_.push_back({token, scores, bytes});
    }
    void drop() { pushed_.clear(); }
    /// A list of entries as chats have them (scores_json.hpp).
    [[nodiscard]] nlohmann::ordered_json take(std::size_t bytes, std::size_t held);

private:
    struct Pushed {
        TokenId token = 0;
        TokenScores scores = {};
        std::size_t bytes = 0;
    };
    const Tokenizer& tokenizer_;
    std::vector<Pushed> pushed_;
};

}  // namespace paceline::serve

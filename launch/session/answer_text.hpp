// AnswerText: from the tokens of one answer to its text, and to its end if that is a stop string.
//
// Whole characters only; a text that may be the beginning of a stop string is held back
// (model/sampling/stop_matcher.hpp). Owned by who receives the tokens; not thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/sampling/stop_matcher.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline {

class AnswerText {
public:
    /// `after`: the last token of the prompt. `stop_strings` have passed validate_stop_strings();
    /// the tokenizer outlives this object.
    AnswerText(const Tokenizer& tokenizer,
               std::optional<TokenId> after,
               std::span<const std::string> stop_strings)
        : detokenizer_{tokenizer, after}, matcher_{stop_strings} {}

    /// Control tokens whose text is part of the answer's. Before the first token.
    void show(std::vector<TokenId> controls) { detokenizer_.show(std::move(controls)); }

    /// The text that a token makes certain. Precondition: no stop string has been found.
    [[nodiscard]] std::string push(TokenId token) {
        return matcher_.push(detokenizer_.push(token));
    }
    /// What was held back; once, after the last token. A stop string may still be found.
    [[nodiscard]] std::string finish() { return matcher_.finish(detokenizer_.finish()); }
    [[nodiscard]] bool stopped() const { return matcher_.found(); }

private:
    Detokenizer detokenizer_;
    StopMatcher matcher_;
};

}  // namespace paceline

// AnswerText: from the tokens of one answer to its text, and to its end if that is a stop string or
// a place in the text that an EndRule finds.
//
// Whole characters only; a text that may be the beginning of a stop string is held back
// (model/sampling/stop_matcher.hpp). The rule reads what is released. Owned by who receives the
// tokens; not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/sampling/stop_matcher.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline {

class AnswerText {
public:
    /// Reads the answer's text piece by piece: how many bytes of a piece belong to the answer, if
    /// it ends there.
    using EndRule = std::function<std::optional<std::size_t>(std::string_view piece)>;

    /// `after`: the last token of the prompt. `stop_strings` have passed validate_stop_strings();
    /// the tokenizer outlives this object.
    AnswerText(const Tokenizer& tokenizer,
               std::optional<TokenId> after,
               std::span<const std::string> stop_strings)
        : detokenizer_{tokenizer, after}, matcher_{stop_strings} {}

    /// Control tokens whose text is part of the answer's. Before the first token.
    void show(std::vector<TokenId> controls) { detokenizer_.show(std::move(controls)); }

    /// Before the first token.
    void end_by(EndRule rule) { rule_ = std::move(rule); }

    /// The text that a token makes certain. Precondition: not stopped().
    [[nodiscard]] std::string push(TokenId token) {
        return within_answer(matcher_.push(detokenizer_.push(token)));
    }
    /// What was held back; once, after the last token. The end may still be found.
    [[nodiscard]] std::string finish() {
        if (ended_by_rule_) return {};
        return within_answer(matcher_.finish(detokenizer_.finish()));
    }
    [[nodiscard]] bool stopped() const { return ended_by_rule_ || matcher_.found(); }
    [[nodiscard]] bool ended_by_rule() const { return ended_by_rule_; }

private:
    std::string within_answer(std::string text) {
        const std::optional<std::size_t> end = rule_ ? rule_(text) : std::nullopt;
        if (!end) return text;
        ended_by_rule_ = true;
        return text.substr(0, *end);
    }

    Detokenizer detokenizer_;
    StopMatcher matcher_;
    EndRule rule_ = {};
    bool ended_by_rule_ = false;
};

}  // namespace paceline

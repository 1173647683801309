#include "actors/decoding/grammar/answer_grammar.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

AnswerGrammar::AnswerGrammar(GrammarLoader& loader,
                             CompiledGrammarPtr grammar,
                             std::vector<TokenId> end_tokens,
                             Position answer_begin)
    : loader_{loader},
      grammar_{std::move(grammar)},
      end_tokens_{std::move(end_tokens)},
      answer_begin_{static_cast<std::size_t>(answer_begin)} {}

Status AnswerGrammar::follow(std::span<const TokenId> text) {
    PACE_CHECK(text.size() >= answer_begin_, "an answer begins behind its text");
    if (!matcher_) {
        Result<std::unique_ptr<GrammarMatcher>> made = loader_.match(grammar_, end_tokens_);
        if (!made) return made.error();
        matcher_ = std::move(made).value();
        // A replay begins with tokens of the answer: a matcher that knows nothing of them allows a
        // second beginning.
        if (planted(PlantedBug::MatcherNotRebuilt)) answer_begin_ = text.size();
    }
    const std::span<const TokenId> answer = text.subspan(answer_begin_);
    const auto differs =
        std::mismatch(accepted_.begin(), accepted_.end(), answer.begin(), answer.end()).first;
    const auto stale = static_cast<std::size_t>(accepted_.end() - differs);
    if (stale > 0) {
        matcher_->roll_back(stale);
        accepted_.erase(differs, accepted_.end());
        mask_is_new_ = false;
    }
    for (const TokenId token : answer.subspan(accepted_.size())) {
        if (accept(token)) continue;
        return Error{
            Errc::Protocol,
            fmt::format("the grammar of an answer does not allow its token {}, which is {}",
                        accepted_.size(), token)};
    }
    return {};
}

const TokenMask& AnswerGrammar::mask() {
    PACE_CHECK(matcher_ != nullptr, "a grammar that follows nothing");
    if (!std::exchange(mask_is_new_, true)) matcher_->fill(mask_);
    return mask_;
}

bool AnswerGrammar::accept(TokenId token) {
    if (!matcher_->accept(token)) return false;
    accepted_.push_back(token);
    mask_is_new_ = false;
    return true;
}

}  // namespace paceline

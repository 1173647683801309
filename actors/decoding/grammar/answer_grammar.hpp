// AnswerGrammar: the tokens that the grammar of one answer allows, along the acceptance walk.
//
//     text    prompt ........ | a0 a1 ... a(n-1)          the committed text
//     follow()                  the matcher has accepted these
//     mask()                                    what may come at a(n)
//     accept()                                  it goes on by a token of the walk
//
// A walk may end without a verdict (its batch was cancelled), and an attempt may begin with tokens
// of the answer (a replay, a preemption): follow() compares what the matcher has accepted with the
// text, takes back what differs and accepts the rest, so that its state is that of the text
// whatever happened before. Loading takes milliseconds, so it is done by the first follow(), in a
// job. One thread at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/grammar/grammar.hpp"
#include "model/sampling/token_mask.hpp"

namespace paceline {

class AnswerGrammar {
public:
    /// `loader` outlives it.
    AnswerGrammar(GrammarLoader& loader,
                  CompiledGrammarPtr grammar,
                  std::vector<TokenId> end_tokens,
                  Position answer_begin);

    /// `text` is prompt and answer. Errors: as GrammarLoader::match(); Protocol if the grammar does
    /// not allow the answer.
    Status follow(std::span<const TokenId> text);
    /// Of the token after what it follows.
    [[nodiscard]] const TokenMask& mask();
    /// False: it is not allowed.
    [[nodiscard]] bool accept(TokenId token);
    /// As GrammarMatcher::forced_tokens().
    [[nodiscard]] std::vector<TokenId> forced_tokens(std::size_t most) {
        return matcher_->forced_tokens(most);
    }

private:
    GrammarLoader& loader_;
    CompiledGrammarPtr grammar_;
    std::vector<TokenId> end_tokens_;
    std::size_t answer_begin_;
    std::unique_ptr<GrammarMatcher> matcher_;  // nullptr until it is needed
    std::vector<TokenId> accepted_;            // by the matcher
    TokenMask mask_;
    bool mask_is_new_ = false;
};

}  // namespace paceline

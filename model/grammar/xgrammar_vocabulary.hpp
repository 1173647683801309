// The vocabulary in xgrammar's form, for compiling and matching; private to model/grammar.
//
// A control token says nothing, so no grammar allows it, with one exception: those that a
// structural tag or an EBNF grammar names ("[TOOL_CALLS]") are text for that grammar. Each set of
// such tokens needs a form of its own, which takes some 10 to 100 ms to make; the last few are
// kept. One thread at a time.
#pragma once

#include <deque>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
#include <xgrammar/tokenizer_info.h>

#include "model/grammar/grammar.hpp"

namespace paceline {

class XgrammarVocabulary {
public:
    explicit XgrammarVocabulary(GrammarVocabulary vocabulary);
    XgrammarVocabulary(const XgrammarVocabulary&) = delete;
    XgrammarVocabulary& operator=(const XgrammarVocabulary&) = delete;

    [[nodiscard]] std::size_t vocab_size() const { return vocabulary_.vocab_size; }
    /// The control tokens that `spec` names, ascending.
    [[nodiscard]] std::vector<TokenId> named_by(const GrammarSpec& spec) const;
    /// `named` are control tokens of this vocabulary, ascending.
    [[nodiscard]] xgrammar::TokenizerInfo info(const std::vector<TokenId>& named);
    /// `bytes` as tokens, each the longest that fits; at most `most`. What no token spells ends it.
    [[nodiscard]] std::vector<TokenId> spelled(std::string_view bytes, std::size_t most) const;
    /// Whether all of `named` are, and ascend.
    [[nodiscard]] bool may_name(const std::vector<TokenId>& named) const;

private:
    static constexpr std::size_t kKept = 4;

    GrammarVocabulary vocabulary_;
    std::unordered_map<std::string_view, TokenId> tokens_;  // by bytes; without control tokens
    std::size_t longest_ = 0;
    std::deque<std::pair<std::vector<TokenId>, xgrammar::TokenizerInfo>> made_;  // the latest first
};

}  // namespace paceline

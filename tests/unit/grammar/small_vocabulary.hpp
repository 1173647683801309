// A vocabulary of some 60 tokens, and a matcher of a grammar over it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/grammar.hpp"

namespace paceline {

inline constexpr TokenId kSmallEnd = 1;      // "<end>", a control token
inline constexpr TokenId kSmallControl = 2;  // "<call>", another

[[nodiscard]] GrammarVocabulary small_vocabulary();
/// The token of exactly these bytes; it exists.
[[nodiscard]] TokenId small_token(std::string_view text);

/// Compiled, and loaded again from its bytes.
[[nodiscard]] Result<std::unique_ptr<GrammarMatcher>> small_matcher(
    const GrammarSpec& spec, const std::vector<TokenId>& end_tokens = {kSmallEnd});

}  // namespace paceline

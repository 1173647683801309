// nearest_word(): which of the known words was probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace paceline {

/// The first of `known` with the smallest edit distance (insertions, deletions, replacements) to
/// `word`; empty if even that one differs in more than a third of the longer one's letters, at
/// least 2: then no known word is similar enough.
[[nodiscard]] std::string_view nearest_word(std::string_view word,
                                            std::span<const std::string_view> known);

/// The end of a message about `word`: ", did you mean 'pearl'? (known: pearl, plain)".
[[nodiscard]] std::string known_text(std::string_view word,
                                     std::span<const std::string_view> known);

}  // namespace paceline

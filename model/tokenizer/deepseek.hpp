// The pre-tokenizers of DeepSeek: several expressions one after the other, each of which splits the
// pieces of the one before.
//
// Of each expression the matches are pieces, and so is what lies between two of them; the next
// expression sees each piece alone. In words:
//
//   coder   CR and LF one by one | [white space] letters | [white space] punctuation | ideographs
//           | numbers one by one
//   llm     CR and LF one by one | [white space] letters with case | [white space] its own list of
//           punctuation | white space at the end of a piece | ideographs | numbers one by one
//
// Source of the expressions: the tokenizer.json files of both families (Hugging Face).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace paceline {

enum class DeepSeek : std::uint8_t { Coder, Llm };

/// Appends the pieces of `text` (valid UTF-8) to `out`. Linear in the text.
void cut_deepseek(DeepSeek kind, std::string_view text, std::vector<std::string_view>& out);

}  // namespace paceline

// PreTokenizer: splits text into pieces; BPE does not merge across their borders.
//
// Each kind is a regular expression of its model family, written by hand as a matcher: iterative,
// without backtracking, linear in the text. In words, first match wins:
//
//   gpt2     's 't 're 've 'm 'll 'd | [space] letters | [space] numbers | [space] others
//            | white space, but for its last character if text follows | white space
//   smollm   every digit alone first; what lies between two digits is a text of its own to gpt2
//   llama3   the contractions in any case | [one neither letter, number, CR nor LF] letters
//            | 1 to 3 numbers | [space] others, then CRs and LFs | white space up to its last CR
//            or LF | white space as in gpt2
//   qwen2    llama3 with numbers one by one, on text in normal form C
//   tekken   [one neither letter, number, CR nor LF] letters of which those with case are capitals
//            first, then small (marks count as both) | one number | [space] others, then CRs, LFs
//            and slashes | white space as in llama3
//
// Those of DeepSeek are in deepseek.hpp.
// Source of the expressions: the tokenizer.json files of these families (Hugging Face).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace paceline {

enum class PreTokenizer : std::uint8_t {
    SmolLm,
    Gpt2,
    Llama3,
    Qwen2,
    Tekken,
    DeepSeekCoder,
    DeepSeekLlm
};

/// The pre-tokenizer that a file means with `name` (tokenizer.ggml.pre), or nothing.
[[nodiscard]] std::optional<PreTokenizer> pre_tokenizer_named(std::string_view name);

/// Appends the pieces of `text`, which is valid UTF-8, to `out`; joined they are the text.
void cut_pieces(PreTokenizer kind, std::string_view text, std::vector<std::string_view>& out);

}  // namespace paceline

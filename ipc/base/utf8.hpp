// UTF-8, strict: no surrogates, no overlong forms, nothing above U+10FFFF.
//
// An invalid part is a "maximal subpart" (Unicode, chapter 3.9; Python's errors="replace" does the
// same): the longest prefix of a character that is not continued. Each becomes one U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace paceline::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";    // U+FFFD
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // U+FEFF

enum class Form : std::uint8_t {
    Whole,      // one character
    Invalid,    // a maximal invalid part
    Unfinished  // the text ends inside a character that is valid so far
};

struct Step {
    Form form;
    std::uint8_t bytes;  // at least 1
    char32_t code;       // only for Whole
};

/// The first character of `text`, which is not empty.
[[nodiscard]] Step first(std::string_view text);

/// Appends `code` (a valid code point) to `out`.
void append(std::string& out, char32_t code);

/// The number of leading bytes of `text` that are whole, valid characters.
[[nodiscard]] std::size_t valid_prefix(std::string_view text);

/// `text` without the byte order mark with which some editors begin a file.
[[nodiscard]] std::string_view without_mark(std::string_view text);

/// `text` with U+FFFD for each invalid part, an unfinished end included.
[[nodiscard]] std::string replace_invalid(std::string_view text);

}  // namespace paceline::utf8

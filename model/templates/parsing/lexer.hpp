// Lexer: the source of a template as texts, and as the tokens between its braces.
//
// As jinja2 with trim_blocks and lstrip_blocks: the first line break after a block goes, and so do
// blanks before a block at the begin of a line; "-" next to a brace strips, "+" keeps. One line
// break at the end of the source goes, and every line ends with "\n".
// Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline::jinja {

enum class TokenType : unsigned char {
    Data,  // words of the template, outside of braces
    PrintBegin,
    PrintEnd,
    BlockBegin,
    BlockEnd,
    Name,
    String,  // its text is what is meant, without quotes and escapes
    Integer,
    Float,
    Operator,
    End
};

struct Token {
    TokenType type = TokenType::End;
    std::string text;
    int line = 1;
};

/// The last token is End. Errors: Unsupported with the line.
[[nodiscard]] Result<std::vector<Token>> tokenize(std::string_view source);

/// What the characters between the quotes of a Python string mean (string_literal.cpp).
/// Errors: Unsupported for names of characters, for halves of surrogate pairs, for escapes that
/// Python refuses.
[[nodiscard]] Result<std::string> string_literal(std::string_view quoted);

}  // namespace paceline::jinja

#include <charconv>
#include <fmt/core.h>

#include "ipc/base/utf8.hpp"
#include "model/templates/parsing/lexer.hpp"

namespace paceline::jinja {
namespace {

constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";

/// How many hexadecimal digits follow the letter of an escape; 0: none do.
std::size_t hex_digits(char letter) {
    return letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
}

Error refused(std::string_view escape) {
    return {Errc::Unsupported,
            fmt::format("a text with the escape '{}', which is not supported", escape)};
}

}  // namespace

Result<std::string> string_literal(std::string_view quoted) {
    std::string meant;
    for (std::size_t i = 0; i < quoted.size(); ++i) {
        if (quoted[i] != '\\' || i + 1 == quoted.size()) {
            meant.push_back(quoted[i]);
            continue;
        }
        const char letter = quoted[++i];
        if (const std::size_t named = kLetters.find(letter); named != kLetters.npos) {
            meant.push_back(kMeanings[named]);
        } else if (letter == 'N') {
            return refused("\\N");
        } else if (letter >= '0' && letter <= '7') {
            unsigned code = 0;
            std::size_t count = 0;
            for (; count < 3 && i + count < quoted.size(); ++count) {
                const char digit = quoted[i + count];
                if (digit < '0' || digit > '7') break;
                code = code * 8 + static_cast<unsigned>(digit - '0');
            }
            utf8::append(meant, static_cast<char32_t>(code));
            i += count - 1;
        } else if (const std::size_t count = hex_digits(letter); count > 0) {
            const std::string_view digits = quoted.substr(i + 1, count);
            std::uint32_t code = 0;
            const auto read =
                std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
            const bool whole = digits.size() == count && read.ptr == digits.data() + count;
            if (!whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
                return refused(quoted.substr(i - 1, count + 2));
            utf8::append(meant, static_cast<char32_t>(code));
            i += count;
        } else if (letter != '\n') {
            meant.push_back('\\');
            meant.push_back(letter);
        }
    }
    return meant;
}

}  // namespace paceline::jinja

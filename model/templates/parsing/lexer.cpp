#include "model/templates/parsing/lexer.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <optional>

#include "ipc/base/utf8.hpp"
#include "model/templates/characters.hpp"
#include "model/templates/text.hpp"

namespace paceline::jinja {
namespace {

std::string with_plain_lines(std::string_view source) {
    std::string text;
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
        text.push_back(source[i] == '\r' ? '\n' : source[i]);
    }
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool is_name(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Lexer {
public:
    explicit Lexer(std::string_view source) : source_{with_plain_lines(source)} {}

    Result<std::vector<Token>> tokens() {
        while (!error_ && at_ < source_.size()) outside();
        if (error_) return std::move(*error_);
        add(TokenType::End, "");
        return std::move(tokens_);
    }

private:
    void fail(const std::string& what) {
        if (!error_)
            error_ = Error{Errc::Unsupported,
                           fmt::format("the chat template, line {}: {}", line_, what)};
        at_ = source_.size();
    }
    void add(TokenType type, std::string text) {
        tokens_.push_back({type, std::move(text), line_});
    }
    [[nodiscard]] std::string_view rest() const { return std::string_view{source_}.substr(at_); }
    void skip(std::size_t count) {
        line_ += static_cast<int>(
            std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                       source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
        at_ += count;
    }
    void skip_blanks() {
        while (at_ < source_.size()) {
            const utf8::Step step = utf8::first(rest());
            if (!is_white_space(step.code)) return;
            skip(step.bytes);
        }
    }

    void outside();
    void add_data(std::size_t end);
    void comment();
    void inside(std::string_view closing, TokenType end);
    bool close(std::string_view closing, TokenType end);
    bool raw();
    void one_token();
    void number();
    void quoted();

    std::string source_;
    std::size_t at_ = 0;
    int line_ = 1;
    bool at_line_begin_ = true;  // what was before this text ended a line
    std::vector<char> open_;     // brackets
    std::vector<Token> tokens_;
    std::optional<Error> error_;
};

/// Text up to the next brace, and what is in the braces.
void Lexer::outside() {
    std::size_t begin = source_.find('{', at_);
    while (begin != std::string::npos &&
           (begin + 1 == source_.size() ||
            std::string_view{"{%#"}.find(source_[begin + 1]) == std::string_view::npos)) {
        begin = source_.find('{', begin + 1);
    }
    if (begin == std::string::npos) begin = source_.size();
    add_data(begin);
    if (at_ >= source_.size()) return;
    const char kind = source_[at_ + 1];
    skip(2);
    if (!rest().empty() && (rest()[0] == '-' || rest()[0] == '+')) skip(1);
    at_line_begin_ = false;
    if (kind == '#') return comment();
    if (kind == '{') return inside("}}", TokenType::PrintEnd);
    if (!raw()) inside("%}", TokenType::BlockEnd);
}

/// The text before the brace at `end`, stripped as the brace wants it.
void Lexer::add_data(std::size_t end) {
    Text text{std::string_view{source_}.substr(at_, end - at_), Origin::Template};
    if (end < source_.size()) {
        const char sign = end + 2 < source_.size() ? source_[end + 2] : ' ';
        if (sign == '-') {
            text = stripped(text, Ends::Right);
        } else if (sign != '+' && source_[end + 1] != '{') {
            const std::size_t line = text.bytes().rfind('\n') + 1;
            if ((line > 0 || at_line_begin_) && stripped(text.sub(line), Ends::Left).empty())
                text = text.sub(0, line);
        }
    }
    if (!text.empty()) add(TokenType::Data, text.bytes());
    skip(end - at_);
}

void Lexer::comment() {
    const std::size_t end = rest().find("#}");
    if (end == std::string_view::npos) return fail("a comment {# without its #}");
    const char sign = end > 0 ? rest()[end - 1] : ' ';
    skip(end + 2);
    if (sign == '-') {
        skip_blanks();
        at_line_begin_ = source_[at_ - 1] == '\n';
    } else if (sign != '+' && rest().starts_with('\n')) {
        skip(1);
        at_line_begin_ = true;
    }
}

/// {% raw %} ... {% endraw %}; false: another block.
bool Lexer::raw() {
    std::string_view tag = rest().substr(0, rest().find("%}"));
    const bool dash = tag.ends_with('-');
    if (dash || tag.ends_with('+')) tag.remove_suffix(1);
    const Text name = stripped(Text{tag, Origin::Template}, Ends::Both);
    if (name.bytes() != "raw") return false;
    fail("the tag 'raw' is not supported");
    return true;
}

bool Lexer::close(std::string_view closing, TokenType end) {
    const bool sign = !rest().empty() &&
                      (rest()[0] == '-' || (rest()[0] == '+' && closing == "%}")) &&
                      rest().substr(1).starts_with(closing);
    if (!sign && !rest().starts_with(closing)) return false;
    const char kind = sign ? rest()[0] : ' ';
    add(end, "");
    skip(closing.size() + (sign ? 1 : 0));
    at_line_begin_ = false;
    if (kind == '-') {
        skip_blanks();
        at_line_begin_ = source_[at_ - 1] == '\n';
    } else if (kind == ' ' && closing == "%}" && rest().starts_with('\n')) {
        skip(1);
        at_line_begin_ = true;
    }
    return true;
}

void Lexer::inside(std::string_view closing, TokenType end) {
    add(closing == "}}" ? TokenType::PrintBegin : TokenType::BlockBegin, "");
    open_.clear();
    while (!error_) {
        if (open_.empty() && close(closing, end)) return;
        if (at_ >= source_.size()) return fail(fmt::format("a tag without its {}", closing));
        one_token();
    }
}

void Lexer::one_token() {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,";
    const char c = source_[at_];
    const std::size_t before = at_;
    skip_blanks();
    if (at_ > before) return;
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return quoted();
    if (is_name(c)) {
        std::size_t end = at_;
        while (end < source_.size() && is_name(source_[end])) ++end;
        add(TokenType::Name, source_.substr(at_, end - at_));
        return skip(end - at_);
    }
    for (const std::string_view two : kTwo) {
        if (!rest().starts_with(two)) continue;
        add(TokenType::Operator, std::string{two});
        return skip(2);
    }
    if (kOne.find(c) == std::string_view::npos)
        return fail(fmt::format("a character that no expression has, byte 0x{:02x}",
                                static_cast<unsigned>(static_cast<unsigned char>(c))));
    if (c == '(' || c == '[' || c == '{') open_.push_back(c);
    if (c == ')' || c == ']' || c == '}') {
        const char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
        if (open_.empty() || open_.back() != opening)
            return fail(fmt::format("'{}' closes nothing", c));
        open_.pop_back();
    }
    add(TokenType::Operator, std::string{c});
    skip(1);
}

void Lexer::number() {
    const std::string_view text = rest();
    std::size_t end = 0;
    const auto digits = [&](std::size_t at) {
        while (at < text.size() && is_digit(text[at])) ++at;
        return at;
    };
    end = digits(0);
    TokenType type = TokenType::Integer;
    if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
        end = digits(end + 1);
        type = TokenType::Float;
    }
    if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
        const bool sign = end + 1 < text.size() && (text[end + 1] == '-' || text[end + 1] == '+');
        const std::size_t power = digits(end + (sign ? 2 : 1));
        if (power > end + (sign ? 2 : 1)) {
            end = power;
            type = TokenType::Float;
        }
    }
    const bool zeros = type == TokenType::Integer && text[0] == '0' &&
                       text.substr(0, end).find_first_not_of('0') != std::string_view::npos;
    if (zeros || (end < text.size() && is_name(text[end])))
        return fail(fmt::format("a number that is not supported, '{}'", text.substr(0, end + 1)));
    add(type, std::string{text.substr(0, end)});
    skip(end);
}

void Lexer::quoted() {
    const std::string_view text = rest();
    std::size_t end = 1;
    while (end < text.size() && text[end] != text[0]) end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size()) return fail("a text without its closing quote");
    Result<std::string> meant = string_literal(text.substr(1, end - 1));
    if (!meant) return fail(meant.error().what);
    add(TokenType::String, std::move(meant).value());
    skip(end + 1);
}

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
    return Lexer{utf8::replace_invalid(source)}.tokens();
}

}  // namespace paceline::jinja

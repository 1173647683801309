// TokenReader: the tokens of a template, read one by one, and the syntax tree that they become.
//
// Shared by the parsers of expressions and of statements. The first failure counts; after it
// every token is the end, so that parsing ends by itself.
// One thread; for parser.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/templates/parsing/lexer.hpp"
#include "model/templates/parsing/syntax.hpp"

namespace paceline::jinja {

class TokenReader {
public:
    explicit TokenReader(std::vector<Token> tokens) : tokens_{std::move(tokens)} {}

    [[nodiscard]] const Token& token(std::size_t ahead = 0) const;
    [[nodiscard]] bool is(TokenType type) const { return token().type == type; }
    [[nodiscard]] bool is_op(std::string_view op) const { return is_at(TokenType::Operator, op); }
    [[nodiscard]] bool is_name(std::string_view name) const { return is_at(TokenType::Name, name); }
    void next() { ++at_; }
    bool skip_op(std::string_view op);
    bool skip_name(std::string_view name);
    void expect_op(std::string_view op);
    void expect(TokenType type, const char* what);
    std::string expect_name();

    void fail(const std::string& what) { fail_at(token().line, what); }
    void fail_at(int line, const std::string& what);
    [[nodiscard]] bool failed() const { return error_.has_value(); }
    [[nodiscard]] const Error& error() const { return *error_; }

    /// Counts a level of nesting as long as it lives; too many fail.
    class Level {
    public:
        explicit Level(TokenReader& reader);
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;
        ~Level() { --reader_.depth_; }

    private:
        TokenReader& reader_;
    };

    /// A node of the tree; it fails if what is below is too deep.
    const Expr* add(Expr expr);
    const Expr* literal(Value value, int line);
    const Statement* add(Statement statement);
    Syntax syntax;

private:
    [[nodiscard]] bool is_at(TokenType type, std::string_view text) const {
        return token().type == type && token().text == text;
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int depth_ = 0;
    Token end_;
    std::optional<Error> error_;
};

/// "'endif'", "the end of the template": for messages.
[[nodiscard]] std::string shown(const Token& token);

}  // namespace paceline::jinja

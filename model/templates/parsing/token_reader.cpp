#include "model/templates/parsing/token_reader.hpp"

#include <algorithm>
#include <fmt/core.h>

namespace paceline::jinja {
namespace {

constexpr int kNestingMax = 100;  // real templates: about 15

}  // namespace

const Token& TokenReader::token(std::size_t ahead) const {
    return failed() || at_ + ahead >= tokens_.size() ? end_ : tokens_[at_ + ahead];
}

bool TokenReader::skip_op(std::string_view op) {
    if (!is_op(op)) return false;
    next();
    return true;
}

bool TokenReader::skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    next();
    return true;
}

void TokenReader::expect_op(std::string_view op) {
    if (!skip_op(op)) fail(fmt::format("'{}' is expected, not {}", op, shown(token())));
}

void TokenReader::expect(TokenType type, const char* what) {
    if (!is(type)) return fail(fmt::format("{} is expected, not {}", what, shown(token())));
    next();
}

std::string TokenReader::expect_name() {
    std::string name = token().text;
    expect(TokenType::Name, "a name");
    return name;
}

void TokenReader::fail_at(int line, const std::string& what) {
    if (!error_)
        error_ =
            Error{Errc::Unsupported, fmt::format("the chat template, line {}: {}", line, what)};
    end_.line = line;
}

TokenReader::Level::Level(TokenReader& reader) : reader_{reader} {
    if (++reader.depth_ > kNestingMax)
        reader.fail(fmt::format("more than {} levels of nesting", kNestingMax));
}

const Expr* TokenReader::add(Expr expr) {
    const auto deepen = [&expr](const Expr* below) {
        if (below != nullptr) expr.depth = std::max(expr.depth, below->depth + 1);
    };
    for (const Expr* item : expr.items) deepen(item);
    for (const auto& keyword : expr.keywords) deepen(keyword.second);
    if (expr.depth > kNestingMax)
        fail_at(expr.line, fmt::format("an expression of more than {} levels", kNestingMax));
    return &syntax.exprs.emplace_back(std::move(expr));
}

const Expr* TokenReader::literal(Value value, int line) {
    return add(Expr{.type = ExprType::Literal, .line = line, .value = value});
}

const Statement* TokenReader::add(Statement statement) {
    return &syntax.statements.emplace_back(std::move(statement));
}

std::string shown(const Token& token) {
    switch (token.type) {
        case TokenType::Data:
            return "text";
        case TokenType::PrintBegin:
            return "'{{'";
        case TokenType::PrintEnd:
            return "'}}'";
        case TokenType::BlockBegin:
            return "'{%'";
        case TokenType::BlockEnd:
            return "'%}'";
        case TokenType::End:
            return "the end of the template";
        default:
            return fmt::format("'{}'", token.text.substr(0, 40));
    }
}

}  // namespace paceline::jinja

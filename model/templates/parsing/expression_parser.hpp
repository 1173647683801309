// ExpressionParser: expressions, with jinja2's precedence.
//
//     if else > or > and > not > comparison > + - > ~ > * / // % > ** > unary - + > . [] () > | is
//
// One thread; for parser.cpp. After a failure of the reader the trees are of no use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/templates/parsing/token_reader.hpp"

namespace paceline::jinja {

class ExpressionParser {
public:
    explicit ExpressionParser(TokenReader& reader) : reader_{reader} {}

    enum class With : unsigned char { Conditional, NoConditional };
    /// One expression.
    const Expr* expression(With with = With::Conditional);
    /// One, or several with commas between: a tuple.
    const Expr* expressions(With with = With::Conditional);
    /// After the "|" of a filter: its name, its arguments, and further filters.
    const Expr* filters(const Expr* object);

    /// Every name that is assigned to anywhere: what is called need not be a built-in function.
    void assigned(const std::string& name) { assigned_.push_back(name); }
    /// Fails for a function that is neither built in nor assigned.
    void check_functions();
    /// Which of these names was read since the caller cleared it.
    ImplicitNames implicit = {};

private:
    struct Called {
        std::string name;
        int line;
    };
    using Rule = const Expr* (ExpressionParser::*)();

    const Expr* conditional();
    const Expr* either();
    const Expr* both();
    const Expr* negation();
    const Expr* comparison();
    const Expr* sums();
    const Expr* concatenation();
    const Expr* products();
    const Expr* power();
    const Expr* unary() { return unary(true); }
    const Expr* unary(bool with_filters);
    const Expr* primary();
    const Expr* name();
    const Expr* number();
    const Expr* text();
    const Expr* parenthesis();
    const Expr* list();
    const Expr* dict();
    const Expr* postfix(const Expr* object);
    const Expr* after_dot(const Expr* object);
    const Expr* brackets(const Expr* object);
    const Expr* call(const Expr* object);
    void arguments(Expr& into);
    const Expr* with_filters(const Expr* object);
    const Expr* one_filter(const Expr* object);
    const Expr* test(const Expr* object);
    const Expr* chain(Rule below, std::initializer_list<std::string_view> ops);
    [[nodiscard]] Expr node(ExprType type, std::vector<const Expr*> items = {}) const;
    void check_nested(const Expr& filter);

    TokenReader& reader_;
    std::vector<std::string> assigned_;
    std::vector<Called> called_;
};

}  // namespace paceline::jinja

#include "model/templates/parsing/expression_parser.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>

#include "model/templates/known_names.hpp"
#include "model/templates/python_attributes.hpp"

namespace paceline::jinja {

Expr ExpressionParser::node(ExprType type, std::vector<const Expr*> items) const {
    return Expr{.type = type, .line = reader_.token().line, .items = std::move(items)};
}

const Expr* ExpressionParser::expression(With with) {
    const TokenReader::Level level{reader_};
    return with == With::Conditional ? conditional() : either();
}

const Expr* ExpressionParser::expressions(With with) {
    Expr tuple = node(ExprType::Tuple, {expression(with)});
    if (!reader_.is_op(",")) return tuple.items.front();
    while (reader_.skip_op(",")) {
        if (reader_.is(TokenType::BlockEnd) || reader_.is(TokenType::PrintEnd)) break;
        tuple.items.push_back(expression(with));
    }
    return reader_.add(std::move(tuple));
}

const Expr* ExpressionParser::conditional() {
    const Expr* value = either();
    while (reader_.skip_name("if")) {
        Expr choice = node(ExprType::Conditional, {value, either(), nullptr});
        if (reader_.skip_name("else")) choice.items[2] = expression();
        value = reader_.add(std::move(choice));
    }
    return value;
}

const Expr* ExpressionParser::either() {
    const Expr* left = both();
    while (reader_.skip_name("or")) left = reader_.add(node(ExprType::Or, {left, both()}));
    return left;
}

const Expr* ExpressionParser::both() {
    const Expr* left = negation();
    while (reader_.skip_name("and")) left = reader_.add(node(ExprType::And, {left, negation()}));
    return left;
}

const Expr* ExpressionParser::negation() {
    const TokenReader::Level level{reader_};
    if (!reader_.skip_name("not")) return comparison();
    return reader_.add(node(ExprType::Not, {negation()}));
}

const Expr* ExpressionParser::comparison() {
    static constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
    Expr compare = node(ExprType::Compare, {sums()});
    for (;;) {
        const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                      [&](std::string_view one) { return reader_.is_op(one); });
        if (op != std::end(kOps)) {
            compare.operators.push_back(*op);
            reader_.next();
        } else if (reader_.skip_name("in")) {
            compare.operators.push_back("in");
        } else if (reader_.is_name("not") && reader_.token(1).type == TokenType::Name &&
                   reader_.token(1).text == "in") {
            reader_.next();
            reader_.next();
            compare.operators.push_back("not in");
        } else {
            break;
        }
        compare.items.push_back(sums());
    }
    return compare.operators.empty() ? compare.items.front() : reader_.add(std::move(compare));
}

/// Operators of one precedence, from left to right.
const Expr* ExpressionParser::chain(Rule below, std::initializer_list<std::string_view> ops) {
    const Expr* left = (this->*below)();
    for (;;) {
        const auto* op = std::find_if(ops.begin(), ops.end(),
                                      [&](std::string_view one) { return reader_.is_op(one); });
        if (op == ops.end()) return left;
        Expr operation = node(ExprType::Arithmetic);
        operation.name = *op;
        reader_.next();
        operation.items = {left, (this->*below)()};
        left = reader_.add(std::move(operation));
    }
}

const Expr* ExpressionParser::sums() {
    return chain(&ExpressionParser::concatenation, {"+", "-"});
}

const Expr* ExpressionParser::concatenation() {
    Expr concat = node(ExprType::Concat, {products()});
    while (reader_.skip_op("~")) concat.items.push_back(products());
    return concat.items.size() == 1 ? concat.items.front() : reader_.add(std::move(concat));
}

const Expr* ExpressionParser::products() {
    return chain(&ExpressionParser::power, {"*", "/", "//", "%"});
}

const Expr* ExpressionParser::power() {
    return chain(&ExpressionParser::unary, {"**"});
}

const Expr* ExpressionParser::unary(bool filters_too) {
    const TokenReader::Level level{reader_};
    const Expr* value = nullptr;
    if (reader_.is_op("-") || reader_.is_op("+")) {
        Expr sign = node(reader_.is_op("-") ? ExprType::Negative : ExprType::Positive);
        reader_.next();
        sign.items = {unary(false)};
        value = reader_.add(std::move(sign));
    } else {
        value = primary();
    }
    value = postfix(value);
    return filters_too ? with_filters(value) : value;
}

const Expr* ExpressionParser::primary() {
    switch (reader_.token().type) {
        case TokenType::Name:
            return name();
        case TokenType::String:
            return text();
        case TokenType::Integer:
        case TokenType::Float:
            return number();
        default:
            break;
    }
    if (reader_.is_op("(")) return parenthesis();
    if (reader_.is_op("[")) return list();
    if (reader_.is_op("{")) return dict();
    reader_.fail("an expression is expected, not " + shown(reader_.token()));
    return reader_.literal({}, 0);
}

const Expr* ExpressionParser::name() {
    const Token token = reader_.token();
    reader_.next();
    const std::string& word = token.text;
    if (word == "true" || word == "True") return reader_.literal(Value::boolean(true), token.line);
    if (word == "false" || word == "False")
        return reader_.literal(Value::boolean(false), token.line);
    if (word == "none" || word == "None") return reader_.literal(Value::none(), token.line);
    implicit.varargs = implicit.varargs || word == "varargs";
    implicit.kwargs = implicit.kwargs || word == "kwargs";
    implicit.caller = implicit.caller || word == "caller";
    return reader_.add(Expr{.type = ExprType::Name, .line = token.line, .name = word});
}

const Expr* ExpressionParser::number() {
    const Token token = reader_.token();
    reader_.next();
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    if (token.type == TokenType::Float) {
        double number = 0.0;
        if (std::from_chars(begin, end, number).ec != std::errc{})
            reader_.fail_at(token.line, "a number that is too large, '" + token.text + "'");
        return reader_.literal(Value::number(number), token.line);
    }
    std::int64_t number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc{})
        reader_.fail_at(token.line, "a whole number of more than 64 bits, '" + token.text + "'");
    return reader_.literal(Value::integer(number), token.line);
}

const Expr* ExpressionParser::text() {
    const int line = reader_.token().line;
    std::string words;
    for (; reader_.is(TokenType::String); reader_.next()) words += reader_.token().text;
    return reader_.literal(reader_.syntax.literals.add(Text{words, Origin::Template}), line);
}

const Expr* ExpressionParser::parenthesis() {
    Expr tuple = node(ExprType::Tuple);
    reader_.next();
    bool comma = false;
    while (!reader_.is_op(")") && !reader_.failed()) {
        tuple.items.push_back(expression());
        if (reader_.is_op(")")) break;
        reader_.expect_op(",");
        comma = true;
    }
    reader_.expect_op(")");
    if (tuple.items.size() == 1 && !comma) return tuple.items.front();
    return reader_.add(std::move(tuple));
}

const Expr* ExpressionParser::list() {
    Expr items = node(ExprType::List);
    reader_.next();
    while (!reader_.is_op("]") && !reader_.failed()) {
        items.items.push_back(expression());
        if (!reader_.is_op("]")) reader_.expect_op(",");
    }
    reader_.expect_op("]");
    return reader_.add(std::move(items));
}

const Expr* ExpressionParser::dict() {
    Expr items = node(ExprType::Dict);
    reader_.next();
    while (!reader_.is_op("}") && !reader_.failed()) {
        items.items.push_back(expression());
        reader_.expect_op(":");
        items.items.push_back(expression());
        if (!reader_.is_op("}")) reader_.expect_op(",");
    }
    reader_.expect_op("}");
    return reader_.add(std::move(items));
}

const Expr* ExpressionParser::postfix(const Expr* object) {
    for (;;) {
        if (reader_.is_op(".")) {
            object = after_dot(object);
        } else if (reader_.is_op("[")) {
            object = brackets(object);
        } else if (reader_.is_op("(")) {
            object = call(object);
        } else {
            return object;
        }
    }
}

const Expr* ExpressionParser::after_dot(const Expr* object) {
    Expr access = node(ExprType::Attribute, {object});
    reader_.next();
    if (reader_.is(TokenType::Integer)) {
        access.type = ExprType::Subscript;
        access.items.push_back(number());
    } else {
        access.name = reader_.expect_name();
    }
    return reader_.add(std::move(access));
}

const Expr* ExpressionParser::brackets(const Expr* object) {
    Expr access = node(ExprType::Subscript, {object, nullptr, nullptr, nullptr});
    reader_.next();
    std::size_t part = 1;
    for (; part <= 3 && !reader_.failed(); ++part) {
        if (!reader_.is_op(":") && !reader_.is_op("]")) access.items[part] = expression();
        if (!reader_.skip_op(":")) break;
        access.type = ExprType::Slice;
    }
    if (reader_.is_op(","))
        reader_.fail("several subscripts in one pair of brackets are not supported");
    reader_.expect_op("]");
    if (access.type == ExprType::Subscript) {
        if (access.items[1] == nullptr) reader_.fail("a subscript is empty");
        access.items.resize(2);
    }
    return reader_.add(std::move(access));
}

const Expr* ExpressionParser::call(const Expr* object) {
    Expr made = node(ExprType::Call, {object});
    if (object->type == ExprType::Name) called_.push_back({object->name, made.line});
    if (object->type == ExprType::Attribute && !is_known_method(object->name))
        reader_.fail("the method '" + object->name + "' is not supported");
    arguments(made);
    return reader_.add(std::move(made));
}

void ExpressionParser::arguments(Expr& into) {
    reader_.expect_op("(");
    while (!reader_.is_op(")") && !reader_.failed()) {
        if (reader_.is_op("*") || reader_.is_op("**"))
            reader_.fail("arguments with '*' are not supported");
        const Token& after = reader_.token(1);
        if (reader_.is(TokenType::Name) && after.type == TokenType::Operator && after.text == "=") {
            std::string keyword = reader_.expect_name();
            reader_.next();
            into.keywords.emplace_back(std::move(keyword), expression());
        } else {
            if (!into.keywords.empty()) reader_.fail("a positional argument after a keyword");
            into.items.push_back(expression());
        }
        if (!reader_.is_op(")")) reader_.expect_op(",");
    }
    reader_.expect_op(")");
}

const Expr* ExpressionParser::with_filters(const Expr* object) {
    for (;;) {
        if (reader_.skip_op("|")) {
            object = one_filter(object);
        } else if (reader_.is_name("is")) {
            object = test(object);
        } else if (reader_.is_op("(")) {
            object = call(object);
        } else {
            return object;
        }
    }
}

const Expr* ExpressionParser::filters(const Expr* object) {
    object = one_filter(object);
    while (reader_.skip_op("|")) object = one_filter(object);
    return object;
}

const Expr* ExpressionParser::one_filter(const Expr* object) {
    Expr filter = node(ExprType::Filter, {object});
    filter.name = reader_.expect_name();
    while (reader_.skip_op(".")) filter.name += "." + reader_.expect_name();
    if (!is_known_filter(filter.name))
        reader_.fail_at(filter.line, "the filter '" + filter.name + "' is not supported");
    if (reader_.is_op("(")) arguments(filter);
    check_nested(filter);
    return reader_.add(std::move(filter));
}

/// The filter or test that map() or select() is given by its name.
void ExpressionParser::check_nested(const Expr& filter) {
    const bool maps = filter.name == "map";
    const bool selects = filter.name == "select" || filter.name == "reject";
    const bool by_attribute = filter.name == "selectattr" || filter.name == "rejectattr";
    const std::size_t at = by_attribute ? 2 : 1;
    if ((!maps && !selects && !by_attribute) || filter.items.size() <= at) return;
    const Expr& name = *filter.items[at];
    if (name.type != ExprType::Literal || !name.value.is(Kind::Text)) return;
    const std::string& word = name.value.text().bytes();
    if (maps ? !is_known_filter(word) : !is_known_test(word))
        reader_.fail_at(filter.line, fmt::format("the {} '{}' is not supported",
                                                 maps ? "filter" : "test", word));
}

const Expr* ExpressionParser::test(const Expr* object) {
    Expr made = node(ExprType::Test, {object});
    reader_.next();
    const bool negated = reader_.skip_name("not");
    made.name = reader_.expect_name();
    if (!is_known_test(made.name))
        reader_.fail_at(made.line, "the test '" + made.name + "' is not supported");
    const Token& after = reader_.token();
    const bool stops = after.type == TokenType::Name &&
                       (after.text == "else" || after.text == "or" || after.text == "and" ||
                        after.text == "is" || after.text == "if");
    const bool begins = after.type == TokenType::Name || after.type == TokenType::String ||
                        after.type == TokenType::Integer || after.type == TokenType::Float ||
                        reader_.is_op("[") || reader_.is_op("{");
    if (reader_.is_op("(")) {
        arguments(made);
    } else if (begins && !stops && after.text != "not" && after.text != "in") {
        made.items.push_back(postfix(primary()));
    }
    const Expr* result = reader_.add(std::move(made));
    return negated ? reader_.add(node(ExprType::Not, {result})) : result;
}

void ExpressionParser::check_functions() {
    for (const Called& one : called_) {
        const bool is_assigned =
            std::find(assigned_.begin(), assigned_.end(), one.name) != assigned_.end();
        if (!is_assigned && !is_known_function(one.name))
            reader_.fail_at(one.line, "the function '" + one.name + "' is not supported");
    }
}

}  // namespace paceline::jinja

#include "model/templates/parsing/parser.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "model/templates/parsing/expression_parser.hpp"
#include "model/templates/parsing/token_reader.hpp"

namespace paceline::jinja {
namespace {

class StatementParser {
public:
    explicit StatementParser(std::vector<Token> tokens) : reader_{std::move(tokens)} {}

    Result<Syntax> parse() {
        Body body = statements({});
        if (!reader_.failed() && !reader_.is(TokenType::End)) stray_tag();
        expressions_.check_functions();
        if (reader_.failed()) return reader_.error();
        reader_.syntax.body = std::move(body);
        return std::move(reader_.syntax);
    }

private:
    using Names = std::initializer_list<std::string_view>;

    Body statements(Names ends);
    const Statement* print();
    const Statement* tag();
    const Statement* if_tag();
    const Statement* for_tag();
    const Statement* set_tag();
    const Statement* macro_tag();
    const Statement* filter_tag();
    const Statement* scope_tag();
    const Statement* jump_tag(StatementType type);
    Target target();
    void end_tag() { reader_.expect(TokenType::BlockEnd, "'%}'"); }
    void close(const char* name);
    void stray_tag();
    [[nodiscard]] bool at_end(Names ends) const;
    [[nodiscard]] Statement node(StatementType type) const {
        return Statement{.type = type, .line = reader_.token().line};
    }

    TokenReader reader_;
    ExpressionParser expressions_{reader_};
    int loops_ = 0;
};

/// Whether the next tag is one of `ends`.
bool StatementParser::at_end(Names ends) const {
    if (!reader_.is(TokenType::BlockBegin)) return false;
    const Token& name = reader_.token(1);
    return name.type == TokenType::Name &&
           std::find(ends.begin(), ends.end(), name.text) != ends.end();
}

/// Up to one of `ends`, which stays.
Body StatementParser::statements(Names ends) {
    const TokenReader::Level level{reader_};
    Body body;
    while (!reader_.is(TokenType::End) && !at_end(ends)) {
        if (reader_.is(TokenType::Data)) {
            Statement data = node(StatementType::Data);
            data.text = Text{reader_.token().text, Origin::Template};
            reader_.next();
            body.push_back(reader_.add(std::move(data)));
        } else if (reader_.is(TokenType::PrintBegin)) {
            body.push_back(print());
        } else {
            const Statement* statement = tag();
            if (statement == nullptr) break;
            body.push_back(statement);
        }
    }
    return body;
}

const Statement* StatementParser::print() {
    Statement made = node(StatementType::Print);
    reader_.next();
    made.value = expressions_.expressions();
    reader_.expect(TokenType::PrintEnd, "'}}'");
    return reader_.add(std::move(made));
}

void StatementParser::stray_tag() {
    const Token& name = reader_.token(1);
    const bool closes = name.text.starts_with("end") || name.text == "else" || name.text == "elif";
    reader_.fail(closes ? fmt::format("{} closes nothing", shown(name))
                        : fmt::format("the tag {} is not supported", shown(name)));
}

/// nullptr: a tag that is not known, which is left to the caller.
const Statement* StatementParser::tag() {
    const std::string name = reader_.token(1).text;
    const bool is_name = reader_.token(1).type == TokenType::Name;
    using Tag = const Statement* (StatementParser::*)();
    static constexpr std::pair<std::string_view, Tag> kTags[] = {
        {"if", &StatementParser::if_tag},         {"for", &StatementParser::for_tag},
        {"set", &StatementParser::set_tag},       {"macro", &StatementParser::macro_tag},
        {"filter", &StatementParser::filter_tag}, {"generation", &StatementParser::scope_tag}};
    for (const auto& [known, parse] : kTags) {
        if (is_name && name == known) {
            reader_.next();
            reader_.next();
            return (this->*parse)();
        }
    }
    if (is_name && name == "break") return jump_tag(StatementType::Break);
    if (is_name && name == "continue") return jump_tag(StatementType::Continue);
    stray_tag();
    return nullptr;
}

/// The tag that ends a body; "%}" of it included.
void StatementParser::close(const char* name) {
    if (reader_.is(TokenType::End)) return reader_.fail(fmt::format("'{}' is missing", name));
    reader_.expect(TokenType::BlockBegin, "'{%'");
    if (!reader_.skip_name(name))
        reader_.fail(fmt::format("'{}' is expected, not {}", name, shown(reader_.token())));
    end_tag();
}

const Statement* StatementParser::if_tag() {
    Statement made = node(StatementType::If);
    for (;;) {
        const Expr* condition = expressions_.expressions(ExpressionParser::With::NoConditional);
        end_tag();
        made.branches.emplace_back(condition, statements({"elif", "else", "endif"}));
        if (!at_end({"elif", "else"})) break;
        reader_.next();
        if (reader_.skip_name("elif")) continue;
        reader_.next();
        end_tag();
        made.branches.emplace_back(nullptr, statements({"endif"}));
        break;
    }
    close("endif");
    return reader_.add(std::move(made));
}

/// a | a, b | (a, b)
Target StatementParser::target() {
    Target made;
    const bool brackets = reader_.skip_op("(");
    do {
        if (reader_.is_op("=") || reader_.is_op(")") || reader_.is_name("in")) break;
        made.names.push_back(reader_.expect_name());
        expressions_.assigned(made.names.back());
        if (reader_.is_op(",")) made.unpacks = true;
    } while (reader_.skip_op(","));
    if (brackets) reader_.expect_op(")");
    if (made.names.empty()) reader_.fail("a name is expected, not " + shown(reader_.token()));
    for (const std::string& name : made.names) {
        if (name == "loop") reader_.fail("'loop' cannot be assigned to");
    }
    return made;
}

const Statement* StatementParser::for_tag() {
    Statement made = node(StatementType::For);
    made.target = target();
    if (!reader_.skip_name("in")) reader_.fail("'in' is expected, not " + shown(reader_.token()));
    made.value = expressions_.expressions(ExpressionParser::With::NoConditional);
    if (reader_.skip_name("if")) made.condition = expressions_.expression();
    if (reader_.is_name("recursive")) reader_.fail("a recursive loop is not supported");
    end_tag();
    ++loops_;
    made.body = statements({"else", "endfor"});
    --loops_;
    if (at_end({"else"})) {
        reader_.next();
        reader_.next();
        end_tag();
        made.otherwise = statements({"endfor"});
    }
    close("endfor");
    return reader_.add(std::move(made));
}

const Statement* StatementParser::set_tag() {
    Statement made = node(StatementType::Set);
    made.target = target();
    if (made.target.names.size() == 1 && !made.target.unpacks && reader_.skip_op("."))
        made.target.attribute = reader_.expect_name();
    if (reader_.skip_op("=")) {
        made.value = expressions_.expressions();
        end_tag();
        return reader_.add(std::move(made));
    }
    made.type = StatementType::SetBlock;
    if (reader_.skip_op("|")) made.value = expressions_.filters(nullptr);
    end_tag();
    made.body = statements({"endset"});
    close("endset");
    return reader_.add(std::move(made));
}

const Statement* StatementParser::macro_tag() {
    Statement made = node(StatementType::Macro);
    made.name = reader_.expect_name();
    expressions_.assigned(made.name);
    reader_.expect_op("(");
    while (!reader_.is_op(")") && !reader_.failed()) {
        std::string parameter = reader_.expect_name();
        expressions_.assigned(parameter);
        const Expr* value = nullptr;
        if (reader_.skip_op("=")) value = expressions_.expression();
        made.parameters.emplace_back(std::move(parameter), value);
        if (!reader_.is_op(")")) reader_.expect_op(",");
    }
    reader_.expect_op(")");
    end_tag();
    const int loops = std::exchange(loops_, 0);
    const ImplicitNames outer = std::exchange(expressions_.implicit, {});
    made.body = statements({"endmacro"});
    made.uses = expressions_.implicit;
    for (const auto& [name, value] : made.parameters) {
        if (name == "varargs") made.uses.varargs = false;
        if (name == "kwargs") made.uses.kwargs = false;
    }
    expressions_.implicit = {.varargs = outer.varargs || made.uses.varargs,
                             .kwargs = outer.kwargs || made.uses.kwargs,
                             .caller = outer.caller || made.uses.caller};
    loops_ = loops;
    close("endmacro");
    return reader_.add(std::move(made));
}

const Statement* StatementParser::filter_tag() {
    Statement made = node(StatementType::FilterBlock);
    made.value = expressions_.filters(nullptr);
    end_tag();
    const int loops = std::exchange(loops_, 0);
    made.body = statements({"endfilter"});
    loops_ = loops;
    close("endfilter");
    return reader_.add(std::move(made));
}

const Statement* StatementParser::scope_tag() {
    Statement made = node(StatementType::Scope);
    end_tag();
    made.body = statements({"endgeneration"});
    close("endgeneration");
    return reader_.add(std::move(made));
}

const Statement* StatementParser::jump_tag(StatementType type) {
    Statement made = node(type);
    if (loops_ == 0) reader_.fail(shown(reader_.token(1)) + " outside of a loop");
    reader_.next();
    reader_.next();
    end_tag();
    return reader_.add(std::move(made));
}

}  // namespace

Result<Syntax> parse(std::string_view source) {
    Result<std::vector<Token>> tokens = tokenize(source);
    if (!tokens) return tokens.error();
    return StatementParser{std::move(tokens).value()}.parse();
}

}  // namespace paceline::jinja

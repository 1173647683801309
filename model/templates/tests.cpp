// Tests: value is name.
#include <fmt/core.h>

#include "model/templates/builtins.hpp"
#include "model/templates/operations.hpp"
#include "model/templates/printing.hpp"

namespace paceline::jinja {
namespace {

/// The operator that a comparing test stands for; empty: none.
std::string_view operator_of(std::string_view name) {
    static constexpr std::pair<std::string_view, std::string_view> kOperators[] = {
        {"eq", "=="}, {"equalto", "=="}, {"==", "=="},         {"ne", "!="},
        {"!=", "!="}, {"lt", "<"},       {"lessthan", "<"},    {"<", "<"},
        {"gt", ">"},  {">", ">"},        {"greaterthan", ">"}, {"le", "<="},
        {"<=", "<="}, {"ge", ">="},      {">=", ">="},         {"in", "in"}};
    for (const auto& [known, op] : kOperators) {
        if (known == name) return op;
    }
    return {};
}

bool is_case(Run& run, const Value& object, Case wanted) {
    const Text text = as_text(run, object);
    const Case other = wanted == Case::Lower ? Case::Upper : Case::Lower;
    // As Python: no character of the other case, and at least one of this.
    return in_case(text, wanted).bytes() == text.bytes() &&
           in_case(text, other).bytes() != text.bytes();
}

/// even, odd, divisibleby: what is left of a division.
bool rest_test(Run& run, std::string_view name, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, name, given, {"num"});
    const bool by_two = name != "divisibleby";
    if (by_two && !(given.positional.empty() && given.keywords.empty()))
        run.fail(fmt::format("the test '{}' takes no argument", name));
    if (run.failed()) return false;
    const Value rest = arithmetic(run, "%", object, by_two ? Value::integer(2) : values[0]);
    return !run.failed() && equal(run, rest, Value::integer(name == "odd" ? 1 : 0));
}

bool passes_sequence_test(const Value& value) {
    return has_indices(value) || value.is(Kind::Text) || value.is(Kind::Dict) ||
           value.is(Kind::Undefined);
}

bool type_test(std::string_view name, const Value& value) {
    if (name == "defined") return !value.is(Kind::Undefined);
    if (name == "undefined") return value.is(Kind::Undefined);
    if (name == "none") return value.is(Kind::None);
    if (name == "boolean") return value.is(Kind::Bool);
    if (name == "true") return value.is(Kind::Bool) && value.whole() != 0;
    if (name == "false") return value.is(Kind::Bool) && value.whole() == 0;
    if (name == "integer") return value.is(Kind::Int);
    if (name == "float") return value.is(Kind::Float);
    if (name == "number") return value.is_number();
    if (name == "string") return value.is(Kind::Text);
    if (name == "mapping") return value.is(Kind::Dict);
    if (name == "sequence") return passes_sequence_test(value);
    if (name == "callable")
        return value.is(Kind::Callable) || value.is(Kind::Macro) || value.is(Kind::Undefined) ||
               value.is(Kind::Loop);
    return value.is(Kind::List) || passes_sequence_test(value) || value.is(Kind::Loop);  // iterable
}

}  // namespace

bool apply_test(Run& run, std::string_view name, const Value& object, const Arguments& given) {
    const std::string_view op = operator_of(name);
    const bool by_identity = name == "sameas";
    if (!op.empty() || by_identity) {
        if (given.positional.size() != 1 || !given.keywords.empty()) {
            run.fail(fmt::format("the test '{}' takes one argument", name));
            return false;
        }
        const Value& other = given.positional[0];
        return by_identity ? is_same(run, object, other) : compare(run, op, object, other);
    }
    if (name == "lower" || name == "upper")
        return is_case(run, object, name == "lower" ? Case::Lower : Case::Upper);
    if (name == "even" || name == "odd" || name == "divisibleby")
        return rest_test(run, name, object, given);
    if (!given.positional.empty() || !given.keywords.empty()) {
        run.fail(fmt::format("the test '{}' takes no argument", name));
        return false;
    }
    return type_test(name, object);
}

}  // namespace paceline::jinja

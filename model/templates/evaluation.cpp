// The expressions of the interpreter.
#include <fmt/core.h>

#include "model/templates/builtins.hpp"
#include "model/templates/operations.hpp"
#include "model/templates/printing.hpp"

namespace paceline::jinja {

Value Interpreter::evaluate(const Expr& expr) {
    const Run::Level level{run_};
    run_.at_line(expr.line);
    if (!run_.step()) return {};
    return evaluate_any(expr);
}

Value Interpreter::evaluate_any(const Expr& expr) {
    const auto item = [this, &expr](std::size_t i) { return evaluate(*expr.items[i]); };
    switch (expr.type) {
        case ExprType::Literal:
            return expr.value;
        case ExprType::Name:
            return look_up(expr.name);
        case ExprType::List:
        case ExprType::Tuple:
            return evaluate_items(expr);
        case ExprType::Dict:
            return evaluate_dict(expr);
        case ExprType::Attribute:
            return attribute(run_, item(0), expr.name);
        case ExprType::Subscript: {
            const Value object = item(0);
            return subscript(run_, object, item(1));
        }
        case ExprType::Slice:
            return evaluate_slice(expr);
        case ExprType::Call:
            return evaluate_call(expr);
        case ExprType::Filter:
            return evaluate_filter(expr);
        case ExprType::Test:
            return evaluate_test(expr);
        case ExprType::Negative:
            return negative(run_, item(0));
        case ExprType::Positive: {
            const Value value = item(0);
            return value.is_number() ? arithmetic(run_, "+", Value::integer(0), value)
                                     : run_.fail("'+' needs a number");
        }
        case ExprType::Not:
            return Value::boolean(!truth(item(0)));
        case ExprType::And:
        case ExprType::Or: {
            const Value left = item(0);
            return truth(left) == (expr.type == ExprType::And) ? item(1) : left;
        }
        case ExprType::Conditional:
            if (truth(item(1))) return item(0);
            return expr.items[2] == nullptr ? Value{} : item(2);
        case ExprType::Concat:
            return evaluate_concat(expr);
        case ExprType::Arithmetic: {
            const Value left = item(0);
            const Value right = item(1);
            run_.at_line(expr.line);
            return run_.failed() ? Value{} : arithmetic(run_, expr.name, left, right);
        }
        case ExprType::Compare:
            return evaluate_compare(expr);
    }
    return {};
}

Value Interpreter::evaluate_items(const Expr& expr) {
    std::vector<Value> items;
    items.reserve(expr.items.size());
    for (const Expr* item : expr.items) items.push_back(evaluate(*item));
    return run_.list(std::move(items),
                     expr.type == ExprType::Tuple ? ListForm::Tuple : ListForm::List);
}

Value Interpreter::evaluate_dict(const Expr& expr) {
    Dict dict;
    for (std::size_t i = 0; i + 1 < expr.items.size(); i += 2) {
        const Value key = evaluate(*expr.items[i]);
        const Value value = evaluate(*expr.items[i + 1]);
        if (const Value* old = find(run_, dict, key); old != nullptr) {
            *const_cast<Value*>(old) = value;
        } else if (!run_.failed()) {
            dict.items.emplace_back(key, value);
        }
    }
    return run_.make(std::move(dict));
}

Value Interpreter::evaluate_slice(const Expr& expr) {
    const Value object = evaluate(*expr.items[0]);
    Value bounds[3];
    for (std::size_t i = 0; i < 3; ++i)
        bounds[i] = expr.items[i + 1] == nullptr ? Value::none() : evaluate(*expr.items[i + 1]);
    return run_.failed() ? Value{} : slice(run_, object, bounds);
}

Value Interpreter::evaluate_concat(const Expr& expr) {
    Text text;
    for (const Expr* item : expr.items) run_.append(text, as_text(run_, evaluate(*item)));
    return run_.make(std::move(text));
}

Value Interpreter::evaluate_compare(const Expr& expr) {
    Value left = evaluate(*expr.items[0]);
    for (std::size_t i = 0; i < expr.operators.size(); ++i) {
        const Value right = evaluate(*expr.items[i + 1]);
        if (run_.failed() || !compare(run_, expr.operators[i], left, right))
            return Value::boolean(false);
        left = right;
    }
    return Value::boolean(true);
}

Arguments Interpreter::arguments(const Expr& expr) {
    Arguments given;
    for (std::size_t i = 1; i < expr.items.size(); ++i)
        given.positional.push_back(evaluate(*expr.items[i]));
    for (const auto& [name, value] : expr.keywords)
        given.keywords.emplace_back(name, evaluate(*value));
    return given;
}

Value Interpreter::evaluate_test(const Expr& expr) {
    const Value object = evaluate(*expr.items[0]);
    const Arguments given = arguments(expr);
    if (run_.failed()) return {};
    run_.at_line(expr.line);
    return Value::boolean(apply_test(run_, expr.name, object, given));
}

Value Interpreter::evaluate_filter(const Expr& expr) {
    const Value object =
        expr.items[0] == nullptr ? run_.make(Text{*filtered_}) : evaluate(*expr.items[0]);
    const Arguments given = arguments(expr);
    if (run_.failed()) return {};
    run_.at_line(expr.line);
    return apply_filter(run_, expr.name, object, given);
}

Value Interpreter::evaluate_call(const Expr& expr) {
    const Value called = evaluate(*expr.items[0]);
    const Arguments given = arguments(expr);
    if (run_.failed()) return {};
    run_.at_line(expr.line);
    if (called.is(Kind::Macro)) return call_macro(called.macro(), given);
    if (called.is(Kind::Callable)) {
        const Callable& what = called.callable();
        return what.is_method ? call_method(run_, what.object, what.name, given)
                              : call_function(run_, what.name, given);
    }
    if (called.is(Kind::Undefined)) return run_.fail(undefined_text(called));
    return run_.fail(fmt::format("{} cannot be called", type_name(called)));
}

}  // namespace paceline::jinja

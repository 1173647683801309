#include <cmath>
#include <fmt/core.h>

#include "model/templates/operations.hpp"

namespace paceline::jinja {
namespace {

Value too_large(Run& run) {
    return run.fail("a whole number needs more than 64 bits, which is not supported");
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
    const std::int64_t quotient = a / b;
    return quotient - ((a % b != 0 && ((a < 0) != (b < 0))) ? 1 : 0);
}

double float_mod(double a, double b) {
    double rest = std::fmod(a, b);
    if (rest != 0.0 && ((rest < 0) != (b < 0))) rest += b;
    return rest == 0.0 ? std::copysign(0.0, b) : rest;
}

Value whole_power(Run& run, std::int64_t base, std::int64_t exponent) {
    std::int64_t power = 1;
    if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
    if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
    for (; exponent > 0; --exponent) {
        if (__builtin_mul_overflow(power, base, &power)) return too_large(run);
    }
    return Value::integer(power);
}

Value whole_arithmetic(Run& run, std::string_view op, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool over = false;
    if (op == "+") {
        over = __builtin_add_overflow(a, b, &result);
    } else if (op == "-") {
        over = __builtin_sub_overflow(a, b, &result);
    } else if (op == "*") {
        over = __builtin_mul_overflow(a, b, &result);
    } else if (op == "**") {
        if (b < 0) return Value::number(std::pow(static_cast<double>(a), static_cast<double>(b)));
        return whole_power(run, a, b);
    } else if (b == 0) {
        return run.fail("division by zero");
    } else if (op == "/") {
        return Value::number(static_cast<double>(a) / static_cast<double>(b));
    } else if (b == -1) {
        if (op == "%") return Value::integer(0);
        over = __builtin_sub_overflow(std::int64_t{0}, a, &result);
    } else {
        const std::int64_t quotient = floor_div(a, b);
        result = op == "//" ? quotient : a - quotient * b;
    }
    return over ? too_large(run) : Value::integer(result);
}

Value float_arithmetic(Run& run, std::string_view op, double a, double b) {
    if (op == "+") return Value::number(a + b);
    if (op == "-") return Value::number(a - b);
    if (op == "*") return Value::number(a * b);
    if (op == "**") return Value::number(std::pow(a, b));
    if (b == 0.0) return run.fail("division by zero");
    if (op == "/") return Value::number(a / b);
    const double rest = float_mod(a, b);
    return Value::number(op == "%" ? rest : std::floor((a - rest) / b + 0.5));
}

Text escaped(const Text& text) {
    Text out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text.bytes()[i];
        const char* name = c == '&'    ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '"'  ? "&#34;"
                           : c == '\'' ? "&#39;"
                                       : nullptr;
        out.append(name == nullptr ? std::string_view{&c, 1} : std::string_view{name},
                   text.origin(i));
    }
    return out;
}

Value sum(Run& run, const Value& a, const Value& b) {
    if (a.is(Kind::Text)) {
        // As markupsafe: what is joined to markup is escaped, and all of it is markup.
        const bool markup = a.text().is_markup() || b.text().is_markup();
        Text both;
        run.append(both, markup && !a.text().is_markup() ? escaped(a.text()) : a.text());
        run.append(both, markup && !b.text().is_markup() ? escaped(b.text()) : b.text());
        if (markup) both.set_markup();
        return run.make(std::move(both));
    }
    std::vector<Value> items;
    const std::size_t count = a.list().items.size() + b.list().items.size();
    if (!run.room(count * sizeof(Value)) || !run.step(count / 8)) return {};
    items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return run.list(std::move(items), a.list().form);
}

Value repeated(Run& run, const Value& value, std::int64_t times) {
    Text text;
    std::vector<Value> items;
    if (value.is(Kind::Text) && value.text().is_markup())
        return run.fail("'*' of a text that went through '| safe' is not supported");
    const bool is_empty = value.is(Kind::Text) ? value.text().empty() : value.list().items.empty();
    for (; times > 0 && !is_empty && run.step(); --times) {
        if (value.is(Kind::Text)) {
            run.append(text, value.text());
            continue;
        }
        const std::vector<Value>& more = value.list().items;
        if (!run.room((items.size() + more.size()) * sizeof(Value)) || !run.step(more.size() / 8))
            break;
        items.insert(items.end(), more.begin(), more.end());
    }
    if (value.is(Kind::Text)) return run.make(std::move(text));
    return run.list(std::move(items), value.list().form);
}

bool is_sequence(const Value& value) {
    return value.is(Kind::Text) || (value.is(Kind::List) && (value.list().form == ListForm::List ||
                                                             value.list().form == ListForm::Tuple));
}

}  // namespace

Value arithmetic(Run& run, std::string_view op, const Value& a, const Value& b) {
    if (a.is_whole() && b.is_whole()) return whole_arithmetic(run, op, a.whole(), b.whole());
    if (a.is_number() && b.is_number()) return float_arithmetic(run, op, a.real(), b.real());
    const bool same = is_sequence(a) && a.kind() == b.kind() &&
                      (a.is(Kind::Text) || a.list().form == b.list().form);
    if (op == "+" && same) return sum(run, a, b);
    if (op == "*" && is_sequence(a) && b.is_whole()) return repeated(run, a, b.whole());
    if (op == "*" && is_sequence(b) && a.is_whole()) return repeated(run, b, a.whole());
    for (const Value& value : {a, b}) {
        if (value.is(Kind::Undefined)) return run.fail(undefined_text(value));
    }
    if (op == "%" && a.is(Kind::Text)) return run.fail("formatting a text by '%' is not supported");
    return run.fail(
        fmt::format("'{}' does not work with {} and {}", op, type_name(a), type_name(b)));
}

Value negative(Run& run, const Value& value) {
    if (value.is(Kind::Float)) return Value::number(-value.real());
    if (value.is_whole()) return whole_arithmetic(run, "-", 0, value.whole());
    if (value.is(Kind::Undefined)) return run.fail(undefined_text(value));
    return run.fail(fmt::format("'-' does not work with {}", type_name(value)));
}

}  // namespace paceline::jinja

#include "model/templates/number_filters.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/core.h>

#include "model/templates/builtins.hpp"
#include "model/templates/operations.hpp"

namespace paceline::jinja {
namespace {

/// The text without blanks around it and a plus sign before it; Python reads numbers so.
std::string number_words(const Text& text) {
    std::string words = stripped(text, Ends::Both).bytes();
    if (words.starts_with('+') && !words.starts_with("+-")) words.erase(0, 1);
    return words;
}

std::optional<double> read_float(const Text& text) {
    const std::string words = number_words(text);
    double number = 0.0;
    const auto read = std::from_chars(words.data(), words.data() + words.size(), number);
    if (words.empty() || read.ec != std::errc{} || read.ptr != words.data() + words.size())
        return {};
    return number;
}

Value whole_of(Run& run, double number, const Value& otherwise) {
    if (std::isnan(number)) return otherwise;
    if (std::fabs(number) >= 9.2e18) return run.fail("int() of more than 64 bits");
    return Value::integer(static_cast<std::int64_t>(number));
}

}  // namespace

Value int_filter(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "int", given, {"default", "base"});
    const bool has_default = !values[0].is(Kind::Undefined);
    const Value otherwise = has_default ? values[0] : Value::integer(0);
    if (!values[1].is(Kind::Undefined)) return run.fail("int() with a base is not supported");
    if (object.is(Kind::Undefined)) return run.fail(undefined_text(object));
    if (object.is_whole()) return Value::integer(object.whole());
    if (object.is(Kind::Float)) return whole_of(run, object.real(), otherwise);
    if (!object.is(Kind::Text)) return otherwise;
    const std::string words = number_words(object.text());
    std::int64_t number = 0;
    const auto read = std::from_chars(words.data(), words.data() + words.size(), number);
    const bool all = !words.empty() && read.ptr == words.data() + words.size();
    if (all && read.ec == std::errc{}) return Value::integer(number);
    const std::optional<double> real = read_float(object.text());
    return real ? whole_of(run, *real, otherwise) : otherwise;
}

Value float_filter(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "float", given, {"default"});
    if (object.is(Kind::Undefined)) return run.fail(undefined_text(object));
    if (object.is_number()) return Value::number(object.real());
    if (object.is(Kind::Text)) {
        if (const std::optional<double> number = read_float(object.text()))
            return Value::number(*number);
    }
    return values[0].is(Kind::Undefined) ? Value::number(0.0) : values[0];
}

Value round_filter(Run& run, const Value& object, const Arguments& given) {
    const std::vector<Value> values = bound(run, "round", given, {"precision", "method"});
    if (run.failed()) return {};
    if (!object.is_number()) return run.fail(fmt::format("round() of {}", type_name(object)));
    const std::int64_t precision = values[0].is_whole() ? values[0].whole() : 0;
    if (precision < 0 || precision > 15)
        return run.fail("round() to that precision is not supported");
    const std::string method =
        values[1].is(Kind::Text) ? values[1].text().bytes() : std::string{"common"};
    if (method == "common") {
        if (object.is_whole()) return Value::integer(object.whole());
        if (!std::isfinite(object.real())) return object;
        // The exact value, rounded half to even, as Python does.
        return Value::number(std::strtod(
            fmt::format("{:.{}f}", object.real(), static_cast<int>(precision)).c_str(), nullptr));
    }
    if (method != "ceil" && method != "floor")
        return run.fail("round() has the methods common, ceil and floor");
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = object.real() * scale;
    return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value abs_filter(Run& run, const Value& object, const Arguments& given) {
    bound(run, "abs", given, {});
    if (object.is(Kind::Float)) return Value::number(std::fabs(object.real()));
    if (!object.is_whole()) return run.fail(fmt::format("abs() of {}", type_name(object)));
    return object.whole() < 0 ? negative(run, object) : Value::integer(object.whole());
}

}  // namespace paceline::jinja

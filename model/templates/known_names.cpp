#include "model/templates/known_names.hpp"

#include <algorithm>
#include <span>

namespace paceline::jinja {
namespace {

constexpr std::string_view kFilters[] = {
    "abs",     "capitalize", "count", "d",      "default", "dictsort",   "first",
    "float",   "indent",     "int",   "items",  "join",    "last",       "length",
    "list",    "lower",      "map",   "max",    "min",     "reject",     "rejectattr",
    "replace", "reverse",    "round", "safe",   "select",  "selectattr", "sort",
    "string",  "sum",        "title", "tojson", "trim",    "unique",     "upper"};

constexpr std::string_view kTests[] = {
    "!=",      "<",        "<=",       "==",          ">",           ">=",
    "boolean", "callable", "defined",  "divisibleby", "eq",          "equalto",
    "even",    "false",    "float",    "ge",          "greaterthan", "gt",
    "in",      "integer",  "iterable", "le",          "lessthan",    "lower",
    "lt",      "mapping",  "ne",       "none",        "number",      "odd",
    "sameas",  "sequence", "string",   "true",        "undefined",   "upper"};

constexpr std::string_view kFunctions[] = {"dict", "namespace", "raise_exception", "range",
                                           "strftime_now"};

constexpr std::string_view kUnsupportedNames[] = {"cycler", "joiner", "lipsum", "self"};

bool is_in(std::span<const std::string_view> names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool is_known_filter(std::string_view name) {
    return is_in(kFilters, name);
}
bool is_known_test(std::string_view name) {
    return is_in(kTests, name);
}
bool is_known_function(std::string_view name) {
    return is_in(kFunctions, name);
}
bool is_unsupported_name(std::string_view name) {
    return is_in(kUnsupportedNames, name);
}

}  // namespace paceline::jinja

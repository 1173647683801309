// Filters, tests, functions and methods: what a template can call without defining it.
//
// Each fails the run where jinja2 raises. The names are those of known_names.hpp.
#pragma once

#include <string_view>

#include "model/templates/interpreter.hpp"

namespace paceline::jinja {

[[nodiscard]] Value apply_filter(Run& run,
                                 std::string_view name,
                                 const Value& object,
                                 const Arguments& given);
[[nodiscard]] bool apply_test(Run& run,
                              std::string_view name,
                              const Value& object,
                              const Arguments& given);
[[nodiscard]] Value call_function(Run& run, std::string_view name, const Arguments& given);
[[nodiscard]] Value call_method(Run& run,
                                const Value& object,
                                std::string_view name,
                                const Arguments& given);

/// The arguments of a call in the order of `names`; Undefined where one is absent.
/// Fails for one too many, and for a keyword that is not among the names.
std::vector<Value> bound(Run& run,
                         std::string_view function,
                         const Arguments& given,
                         std::initializer_list<std::string_view> names);

}  // namespace paceline::jinja

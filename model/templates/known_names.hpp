// Which filters, tests, functions, methods and tags there are.
//
// A template that uses another name is refused when it is parsed, before a conversation begins; the error has
// the name.
// Pure functions.
#pragma once

#include <string_view>

namespace paceline::jinja {

[[nodiscard]] bool is_known_filter(std::string_view name);
[[nodiscard]] bool is_known_test(std::string_view name);
[[nodiscard]] bool is_known_function(std::string_view name);
[[nodiscard]] bool is_known_method(std::string_view name);
/// One that changes its object: the sandbox of the transformers library forbids it when it is
/// called, so that a template may have it where it is never reached.
[[nodiscard]] bool is_changing_method(std::string_view name);

}  // namespace paceline::jinja

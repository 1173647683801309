// Which filters, tests and functions there are; methods are in python_attributes.hpp.
//
// A template that uses another name is refused when it is parsed, before a conversation begins; the
// error has the name.
// Pure functions.
#pragma once

#include <string_view>

namespace paceline::jinja {

[[nodiscard]] bool is_known_filter(std::string_view name);
[[nodiscard]] bool is_known_test(std::string_view name);
[[nodiscard]] bool is_known_function(std::string_view name);
/// One that jinja2 defines and this engine does not: to read it is an error, not undefined.
[[nodiscard]] bool is_unsupported_name(std::string_view name);

}  // namespace paceline::jinja

// Parser: the source of a template as a syntax tree.
//
// Refuses by name what the interpreter does not have: tags, filters, tests, functions, methods.
// Pure function.
#pragma once

#include <string_view>

#include "ipc/base/result.hpp"
#include "model/templates/parsing/syntax.hpp"

namespace paceline::jinja {

/// Errors: Unsupported with the line.
[[nodiscard]] Result<Syntax> parse(std::string_view source);

}  // namespace paceline::jinja

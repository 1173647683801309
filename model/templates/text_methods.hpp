// Methods of texts, as Python's str has them; what they cut out keeps its origin.
#pragma once

#include <string_view>

#include "model/templates/interpreter.hpp"

namespace paceline::jinja {

[[nodiscard]] Value text_method(Run& run,
                                const Text& text,
                                std::string_view name,
                                const Arguments& given);

/// str.replace(); count < 0: all.
[[nodiscard]] Value replaced(
    Run& run, const Text& text, const Text& old, const Text& with, std::int64_t count);
/// The first character in upper case, the others in lower case.
[[nodiscard]] Text capitalized(const Text& text);
/// Values with `between` between them, each as str() prints it.
[[nodiscard]] Value joined(Run& run, const Text& between, const std::vector<Value>& items);

}  // namespace paceline::jinja

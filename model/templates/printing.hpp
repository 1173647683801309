// Values as text: as Python's str() and repr(), and as JSON.
//
// Errors: what Python prints by its address (an iterator, a function), and what has no JSON (a
// namespace, a range), fails the run.
#pragma once

#include <string>

#include "model/templates/run.hpp"

namespace paceline::jinja {

/// Python's repr(): "1.0", "1e-05", "1e+16", "inf".
[[nodiscard]] std::string float_text(double value);

/// str(): what {{ }} prints. Undefined is empty.
[[nodiscard]] Text as_text(Run& run, const Value& value);

/// json.dumps() with the options that the filter tojson has in the transformers library.
struct JsonStyle {
    bool ensure_ascii = false;
    bool sort_keys = false;
    std::optional<std::string> indent = {};  // of one level; nothing: one line
    std::string item_separator = ", ";
    std::string key_separator = ": ";
};
[[nodiscard]] Text as_json(Run& run, const Value& value, const JsonStyle& style);

}  // namespace paceline::jinja

// python_attribute(): what Python's types have as attributes, by what a template gets of them.
//
// Names that begin with '_' and those of a generator that begin with gi_ are none: jinja2's sandbox
// does not give them.
// Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "model/templates/value.hpp"

namespace paceline::jinja {

enum class Attribute : std::uint8_t {
    None,
    Method,      // a method that this engine has
    Forbidden,   // one that changes its object: undefined, also if a dictionary's item has the name
    Unsupported  // one that this engine does not have
};

/// Whether a value of some type has a method of that name. Also one that changes its object: the
/// sandbox of the transformers library forbids it when it is called, so that a template may have it
/// where it is never reached.
[[nodiscard]] bool is_known_method(std::string_view name);

/// Of numbers, texts, lists, dictionaries and functions. Not of a range's numbers.
[[nodiscard]] Attribute python_attribute(const Value& object, std::string_view name);

}  // namespace paceline::jinja

// json_value(): JSON as values of templates, in the order in which it is written.
//
// Every text, keys included, is of the user. Of an object with a key twice the last counts.
// Pure but for the heap.
#pragma once

#include <string_view>

#include "ipc/base/result.hpp"
#include "model/templates/value.hpp"

namespace paceline::jinja {

/// Errors: BadArgument for what is no JSON, deeper than 100 levels, or a whole number beyond 64
/// bits.
[[nodiscard]] Result<Value> json_value(Heap& heap, std::string_view json);

/// `message` with its role as words of the template where it is one of the usual ones: templates
/// build control tokens of it ('<|' + role + '|>'). Any other role stays the user's.
[[nodiscard]] Value with_known_role(Heap& heap, const Value& message);

}  // namespace paceline::jinja

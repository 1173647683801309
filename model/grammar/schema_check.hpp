// Refuses the JSON schemas that the library would silently take for wider ones: an answer that is
// bound to a schema is valid by it, or the schema is refused with the place and the reason.
//
// The library ignores keywords that it does not know, what stands beside a $ref or a combination,
// and references that it cannot resolve. `oneOf` is an exception that stays: it is taken for
// `anyOf`, which is the same where the alternatives exclude each other, as in most schemas.
// Pure functions; any thread.
#pragma once

#include <string_view>

#include "ipc/base/result.hpp"

namespace paceline {

/// Errors: BadArgument with line and column of what is no JSON, or the JSON pointer of the keyword.
[[nodiscard]] Status check_schema(std::string_view text);

/// The same for the schemas inside a structural tag.
[[nodiscard]] Status check_schemas_of_tag(std::string_view text);

}  // namespace paceline

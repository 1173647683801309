// check_chat_tools(): whether a text is a list of tools in the JSON of chat APIs.
//
//     [{"type": "function", "function": {"name": "...", "description": "...", "parameters":
//     {...}}}, ...]
//
// The function may stand alone, without the object around it. What further members mean is the
// template's matter. Pure.
#pragma once

#include <string_view>

#include "ipc/base/result.hpp"

namespace paceline {

/// Errors: BadFile naming the member ("[1].function.name is missing").
[[nodiscard]] Status check_chat_tools(std::string_view json);

}  // namespace paceline

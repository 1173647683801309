// chat_messages(): a conversation in the JSON of chat APIs, as the transformers library gives it to
// templates.
//
// Of each message, keys whose value is null go: a template that asks "is defined" must not see
// them. The arguments of tool calls, a text of JSON in such APIs, become the object that templates
// print; a text that is no JSON, as a limit of tokens leaves it, is treated as CutArguments says.
// A message with `reasoning_content`, `thinking` or `reasoning` gets the first two from whichever
// it has; `thinking` becomes its first key, as there.
// Every text is the user's, but for the usual roles. Pure but for the heap.
#pragma once

#include <cstdint>
#include <string_view>

#include "ipc/base/result.hpp"
#include "model/templates/value.hpp"

namespace paceline {

/// What becomes of arguments that are a text but no JSON.
enum class CutArguments : std::uint8_t {
    Refuse,
    AsText,   // the template sees the text as it is
    AsEmpty,  // the template sees an object without members
};

/// `json`: a list of objects. Errors: BadArgument naming the message, for what is none, or has
/// arguments that are a text but no JSON object.
[[nodiscard]] Result<jinja::Value> chat_messages(jinja::Heap& heap,
                                                 std::string_view json,
                                                 CutArguments cut = CutArguments::Refuse);

}  // namespace paceline

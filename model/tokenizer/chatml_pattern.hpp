// chatml_pattern: is a Jinja text one of the ChatML templates whose rendering is known?
//
// Compared word for word, with two kinds of holes: the default system prompt, and blocks that
// are rendered only for tools and tool calls (which Paceline does not pass).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace paceline {

/// What is between the fixed words of a ChatML template.
struct ChatMl {
    std::string default_system;  // empty: the template adds none
};

/// Nothing if `jinja` is no known template.
[[nodiscard]] std::optional<ChatMl> match_chatml(std::string_view jinja);

}  // namespace paceline

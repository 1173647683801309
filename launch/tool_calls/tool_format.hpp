// ToolFormat: how a model writes the calls of tools into its text. It follows from the text of its
// chat template.
//
//     Hermes    <tool_call>{"name": "f", "arguments": {...}}</tool_call>      also Qwen
//     Xml       <tool_call><function=f><parameter=key>value</parameter></function></tool_call>
//     Llama3    {"name": "f", "parameters": {...}}; {...}   or behind <|python_tag|>
//     Mistral   [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]
//               [TOOL_CALLS]f[ARGS]{...}[TOOL_CALLS]...
//     Phi4      functools[{...}, ...]   or <|tool_call|>[{...}, ...]<|/tool_call|>
//     Json      {"name": "f", "arguments": {...}} or a list of these, and nothing else
//
// Json is for all other templates. Constant data and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::serve {

enum class ToolFormat : std::uint8_t { None, Hermes, Llama3, Mistral, Phi4, Json, Xml };

/// What a format looks like to its reader.
struct ToolSyntax {
    const char* name = "none";
    std::span<const std::string_view> opens = {};  // anywhere in the text
    std::string_view open_at_start = {};           // only where an answer begins
    std::string_view close = {};                   // may follow the call, or the list of calls
    bool bare = false;   // an answer that begins with { or [ may be a call, of a known tool
    bool named = false;  // name[ARGS]{...} is a call
    bool more = false;   // a further object may follow, also behind ; or ,
    bool tags = false;   // <function=name> ... is a call, also with nothing around it
};

[[nodiscard]] const ToolSyntax& syntax_of(ToolFormat format);
[[nodiscard]] ToolFormat tool_format_of(std::string_view chat_template);
/// Whether the template shows tools to the model.
[[nodiscard]] bool shows_tools(std::string_view chat_template);
/// Whether answers may begin with <think> ... </think>.
[[nodiscard]] bool has_thoughts(std::string_view chat_template);
/// Tokens that a format or a thought may be written with, though they are control tokens of some
/// vocabularies: answers show them.
[[nodiscard]] std::span<const std::string_view> shown_controls();

/// Of a tool, the parameters that are strings by its schema: a format without quotes needs to know.
struct ParameterTexts {
    std::string tool = {};
    std::vector<std::string> texts = {};     // any text
    std::vector<std::string> words = {};     // of a list, a pattern or a length: no blanks around
    std::vector<std::string> nullable = {};  // of both: null too

    bool operator==(const ParameterTexts&) const = default;
};

/// How one request's answers are read (reply_reader.hpp).
struct ReplyFormat {
    ToolFormat tools = ToolFormat::None;          // None: calls are text
    std::vector<std::string> names = {};          // of the tools
    bool thoughts = false;                        // the text before </think> is a thought
    bool begins_in_thought = false;               // the prompt ends with <think>
    bool one_call = false;                        // the answer ends behind its first call
    std::vector<ParameterTexts> parameters = {};  // of Xml

    [[nodiscard]] bool is_plain() const { return tools == ToolFormat::None && !thoughts; }
};

}  // namespace paceline::serve

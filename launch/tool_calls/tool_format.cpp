#include "launch/tool_calls/tool_format.hpp"

namespace paceline::serve {
namespace {

constexpr std::string_view kHermesOpens[] = {"<tool_call>"};
constexpr std::string_view kXmlOpens[] = {"<tool_call>", "<function="};
constexpr std::string_view kLlamaOpens[] = {"<|python_tag|>"};
constexpr std::string_view kMistralOpens[] = {"[TOOL_CALLS]"};
constexpr std::string_view kPhiOpens[] = {"<|tool_call|>"};
constexpr std::string_view kShown[] = {
    "<tool_call>", "</tool_call>",  "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]",
    "[CALL_ID]",   "<|tool_call|>", "<|/tool_call|>", "<think>",      "</think>"};

constexpr ToolSyntax kNone{};
constexpr ToolSyntax kHermes{.name = "hermes", .opens = kHermesOpens, .close = "</tool_call>"};
constexpr ToolSyntax kLlama3{.name = "llama3", .opens = kLlamaOpens, .bare = true, .more = true};
constexpr ToolSyntax kMistral{.name = "mistral", .opens = kMistralOpens, .named = true};
constexpr ToolSyntax kPhi4{
    .name = "phi4", .opens = kPhiOpens, .open_at_start = "functools", .close = "<|/tool_call|>"};
constexpr ToolSyntax kXml{.name = "xml", .opens = kXmlOpens, .close = "</tool_call>", .tags = true};
constexpr ToolSyntax kJson{.name = "json", .bare = true, .more = true};

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != text.npos;
}

}  // namespace

const ToolSyntax& syntax_of(ToolFormat format) {
    switch (format) {
        case ToolFormat::Hermes:
            return kHermes;
        case ToolFormat::Llama3:
            return kLlama3;
        case ToolFormat::Mistral:
            return kMistral;
        case ToolFormat::Phi4:
            return kPhi4;
        case ToolFormat::Json:
            return kJson;
        case ToolFormat::Xml:
            return kXml;
        default:
            return kNone;
    }
}

ToolFormat tool_format_of(std::string_view chat_template) {
    // Calls in the form of XML have the same tag around them.
    if (has(chat_template, "<tool_call>"))
        return has(chat_template, "<function=") ? ToolFormat::Xml : ToolFormat::Hermes;
    if (has(chat_template, "[TOOL_CALLS]")) return ToolFormat::Mistral;
    if (has(chat_template, "<|tool_call|>") || has(chat_template, "functools["))
        return ToolFormat::Phi4;
    const bool llama = has(chat_template, "<|start_header_id|>") && has(chat_template, "ipython");
    if (has(chat_template, "<|python_tag|>") || llama) return ToolFormat::Llama3;
    return ToolFormat::Json;
}

bool shows_tools(std::string_view chat_template) {
    return has(chat_template, "tools");
}

bool has_thoughts(std::string_view chat_template) {
    return has(chat_template, "</think>") || has(chat_template, "<think>");
}

std::span<const std::string_view> shown_controls() {
    return kShown;
}

}  // namespace paceline::serve

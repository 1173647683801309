#include "launch/api/tools/tool_grammar.hpp"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

/// How a format writes calls where nothing else stands.
struct CallForm {
    std::string before = {};  // all calls
    std::string open = {};    // a call, up to its name
    std::string middle = {};  // between name and arguments
    std::string close = {};
    std::string separator = {};
    std::string after = {};
    std::string trigger = {};  // of free text; empty: there is none
    std::string style = {};    // of arguments; empty: JSON
};

CallForm form_of(ToolFormat format, bool parallel) {
    const std::string name = "{\"name\": \"";
    const std::string arguments = "\", \"arguments\": ";
    switch (format) {
        case ToolFormat::Hermes:
            return {.open = "<tool_call>\n" + name,
                    .middle = arguments,
                    .close = "}\n</tool_call>",
                    .separator = "\n",
                    .trigger = "<tool_call>"};
        case ToolFormat::Llama3:
            return {.open = name,
                    .middle = "\", \"parameters\": ",
                    .close = "}",
                    .separator = "; "};  // any JSON may begin so, and any code behind the tag
        case ToolFormat::Xml:
            // Blanks in front of the first parameter and behind the last one are the arguments'.
            return {.open = "<tool_call>\n<function=",
                    .middle = ">",
                    .close = "</function>\n</tool_call>",
                    .separator = "\n",
                    .trigger = "<tool_call>",
                    .style = "qwen_xml"};
        case ToolFormat::Mistral:
            return {.before = "[TOOL_CALLS][",
                    .open = name,
                    .middle = arguments,
                    .close = "}",
                    .separator = ", ",
                    .after = "]",
                    .trigger = "[TOOL_CALLS]"};
        case ToolFormat::Phi4:
            return {.before = "<|tool_call|>[",
                    .open = name,
                    .middle = arguments,
                    .close = "}",
                    .separator = ", ",
                    .after = "]<|/tool_call|>",
                    .trigger = "<|tool_call|>"};
        default: {
            CallForm form{.open = name, .middle = arguments, .close = "}", .separator = ", "};
            if (parallel) {
                form.before = "[";
                form.after = "]";
            }
            return form;
        }
    }
}

Json constant(const std::string& text) {
    return {{"type", "const_string"}, {"value", text}};
}

/// xgrammar 0.2.8 takes an array without `items` for an empty one where values are in tags.
/// Recursion is as deep as the body was allowed to be.
void name_items(Json& schema) {
    if (!schema.is_structured()) return;
    if (const auto type = schema.is_object() ? schema.find("type") : schema.end();
        type != schema.end() && *type == "array" && !schema.contains("prefixItems") &&
        !schema.contains("items"))
        schema["items"] = true;
    for (const auto& [key, value] : schema.items()) {
        if (key != "enum" && key != "const") name_items(value);
    }
}

Json schema_of(const ToolFunction& function, const std::string& style = {}) {
    Json schema = Json::object({{"type", "object"}});
    if (!function.parameters.empty()) schema = Json::parse(function.parameters);
    if (!style.empty()) name_items(schema);
    Json content{{"type", "json_schema"},
                 {"json_schema", std::move(schema)},
                 {"max_whitespace_cnt", kBlanksMax}};
    if (!style.empty()) content["style"] = style;
    return content;
}

Json tags_of(const CallForm& form, const ToolRequest& tools) {
    Json tags = Json::array();
    for (const ToolFunction& function : tools.functions)
        tags.push_back({{"type", "tag"},
                        {"begin", form.open + function.name + form.middle},
                        {"content", schema_of(function, form.style)},
                        {"end", form.close}});
    return tags;
}

Json calls_of(const CallForm& form, const ToolRequest& tools) {
    return {{"type", "tags_with_separator"},
            {"tags", tags_of(form, tools)},
            {"separator", form.separator},
            {"at_least_one", true},
            {"stop_after_first", !tools.parallel}};
}

/// name[ARGS]{...} and name[CALL_ID]id[ARGS]{...}, as later Mistral models write calls.
Json named_calls(const CallForm& form, const ToolRequest& tools) {
    const Json arguments = constant("[ARGS]");
    const Json id{{"type", "sequence"},
                  {"elements", Json::array({constant("[CALL_ID]"),
                                            {{"type", "regex"}, {"pattern", "[a-zA-Z0-9]{9}"}},
                                            arguments})}};
    const Json behind_name{{"type", "or"}, {"elements", Json::array({arguments, id})}};
    Json tags = Json::array();
    for (const ToolFunction& function : tools.functions) {
        const Json content{{"type", "sequence"},
                           {"elements", Json::array({behind_name, schema_of(function)})}};
        tags.push_back({{"type", "tag"},
                        {"begin", form.trigger + function.name},
                        {"content", content},
                        {"end", ""}});
    }
    return tags;
}

/// What a tag in free text opens: a call, or where the format has one a list of calls.
Json triggered(ToolFormat format, const CallForm& form, const ToolRequest& tools) {
    if (form.before.empty()) return tags_of(form, tools);
    Json tags = Json::array({{{"type", "tag"},
                              {"begin", form.before},
                              {"content", calls_of(form, tools)},
                              {"end", form.after}}});
    if (format != ToolFormat::Mistral) return tags;
    for (Json& tag : named_calls(form, tools)) tags.push_back(std::move(tag));
    return tags;
}

/// The thought that may, or if it has begun must, come first, and what divides it from the calls.
void add_thought(const ReplyFormat& format, Json& elements) {
    if (!format.thoughts) return;
    Json thought{{"type", "tag"},
                 {"begin", format.begins_in_thought ? "" : "<think>"},
                 {"content", {{"type", "any_text"}}},
                 {"end", "</think>"}};
    Json blanks{{"type", "regex"}, {"pattern", "\\n{0,2}"}};
    Json both{{"type", "sequence"}, {"elements", Json::array({thought, blanks})}};
    if (format.begins_in_thought) {
        elements.push_back(std::move(both));
    } else {
        elements.push_back({{"type", "optional"}, {"content", std::move(both)}});
    }
}

/// `elements` one after the other.
Json sequence(Json elements) {
    if (elements.size() == 1) return elements.front();
    return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

/// Calls and nothing else, behind the thought.
void add_calls(const ReplyFormat& format, const ToolRequest& tools, Json& elements) {
    const CallForm form = form_of(format.tools, tools.parallel);
    if (!form.before.empty()) elements.push_back(constant(form.before));
    elements.push_back(calls_of(form, tools));
    if (!form.after.empty()) elements.push_back(constant(form.after));
}

Json format_of(const GrammarSpec& asked) {
    switch (asked.kind) {
        case GrammarKind::JsonSchema:
            return {{"type", "json_schema"},
                    {"json_schema", Json::parse(asked.text)},
                    {"max_whitespace_cnt", kBlanksMax}};
        case GrammarKind::Ebnf:
            return {{"type", "grammar"}, {"grammar", asked.text}};
        case GrammarKind::Regex:
            return {{"type", "regex"}, {"pattern", asked.text}};
        case GrammarKind::StructuralTag:
            return Json::parse(asked.text).value("format", Json::object());
        default:
            return {{"type", "json_schema"},
                    {"json_schema", {{"type", "object"}}},
                    {"max_whitespace_cnt", kBlanksMax}};
    }
}

GrammarSpec structural_tag(Json format) {
    const Json tag{{"type", "structural_tag"}, {"format", std::move(format)}};
    return {.kind = GrammarKind::StructuralTag,
            .text = tag.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace

GrammarSpec tool_grammar(const ReplyFormat& format,
                         const ToolRequest& tools,
                         bool text_by_control) {
    if (tools.none()) return {};
    if (tools.choice == ToolChoice::Required) {
        Json elements = Json::array();
        add_thought(format, elements);
        add_calls(format, tools, elements);
        return structural_tag(sequence(std::move(elements)));
    }
    const CallForm form = form_of(format.tools, tools.parallel);
    if (form.trigger.empty() || text_by_control) return {};
    return structural_tag({{"type", "triggered_tags"},
                           {"triggers", Json::array({form.trigger})},
                           {"tags", triggered(format.tools, form, tools)},
                           {"at_least_one", false},
                           {"stop_after_first", !tools.parallel}});
}

GrammarSpec looser_tool_grammar(const ReplyFormat& format,
                                ToolRequest tools,
                                bool text_by_control) {
    for (ToolFunction& function : tools.functions) function.parameters.clear();
    return tool_grammar(format, tools, text_by_control);
}

GrammarSpec answer_grammar(const ReplyFormat& format,
                           const ToolRequest& tools,
                           const GrammarSpec& asked,
                           bool text_by_control) {
    const bool must_call = !tools.none() && tools.choice == ToolChoice::Required;
    if (!asked.any() || must_call) return tool_grammar(format, tools, text_by_control);
    const bool schema = asked.kind == GrammarKind::Json || asked.kind == GrammarKind::JsonSchema;
    const bool may_call = !tools.none() && schema;
    if (!format.thoughts && !may_call) return asked;
    Json elements = Json::array();
    add_thought(format, elements);
    if (may_call) {
        Json calls = Json::array();
        add_calls(format, tools, calls);
        elements.push_back(
            {{"type", "or"},
             {"elements", Json::array({format_of(asked), sequence(std::move(calls))})}});
    } else {
        elements.push_back(format_of(asked));
    }
    return structural_tag(sequence(std::move(elements)));
}

}  // namespace paceline::serve

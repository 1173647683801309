#include "launch/api/messages/messages_request.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "launch/api/chat_request.hpp"
#include "launch/api/fields.hpp"
#include "launch/api/tools/chat_body.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

constexpr std::string_view kBilling = "x-anthropic-billing-header:";

/// "" for what is no text.
std::string text_at(const json& object, const char* name) {
    const auto at = object.find(name);
    return at != object.end() && at->is_string() ? at->get<std::string>() : std::string{};
}

ApiError only_text(const std::string& place, const std::string& type) {
    return bad_field(place, "is of type '" + visible(type) + "'; the model reads nothing but text");
}

/// A text, or a list of blocks of type text.
ApiResult<std::string> block_text(const json& content, const std::string& place) {
    if (content.is_string()) return content.get<std::string>();
    if (content.is_null()) return std::string{};
    if (!content.is_array()) return bad_field(place, "must be a string or a list of text blocks");
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i) {
        const std::string name = fmt::format("{}[{}]", place, i);
        if (!content[i].is_object()) return bad_field(name, "must be an object");
        const std::string type = text_at(content[i], "type");
        if (type != "text") return only_text(name, type);
        const auto at = content[i].find("text");
        if (at == content[i].end() || !at->is_string())
            return bad_field(name + ".text", "must be a string");
        const auto& own = at->get_ref<const std::string&>();
        if (!text.empty() && !own.empty()) text += "\n\n";
        text += own;
    }
    return text;
}

/// The same of the system's text, whose billing line may be a block of its own. What tools and
/// users say stays as it is.
ApiResult<std::string> system_text(const json& content, const std::string& place) {
    if (content.is_string()) return without_billing_line(content.get<std::string>());
    json blocks = content;
    for (json& block : blocks) {
        if (block.is_object() && block.contains("text") && block["text"].is_string())
            block["text"] = without_billing_line(block["text"].get<std::string>());
    }
    return block_text(blocks, place);
}

std::optional<ApiError> add_user_block(const json& block,
                                       const std::string& place,
                                       ChatBody& body) {
    const std::string type = text_at(block, "type");
    if (type == "text") {
        body.add_user(text_at(block, "text"));
        return {};
    }
    if (type != "tool_result") return only_text(place, type);
    const json content = block.value("content", json{});
    ApiResult<std::string> text = block_text(content, place + ".content");
    if (!text) return text.error();
    body.add_result(text_at(block, "tool_use_id"), text.value());
    return {};
}

std::optional<ApiError> add_assistant_block(const json& block,
                                            const std::string& place,
                                            ChatBody& body) {
    const std::string type = text_at(block, "type");
    if (type == "text") {
        body.add_text(text_at(block, "text"));
    } else if (type == "thinking") {
        body.add_thought(text_at(block, "thinking"));
    } else if (type == "tool_use") {
        const json input = block.value("input", json::object());
        if (text_at(block, "name").empty()) return bad_field(place + ".name", "is missing");
        if (!input.is_object()) return bad_field(place + ".input", "must be an object");
        body.add_call(text_at(block, "id"), text_at(block, "name"), input.dump());
    }
    return {};  // others are of tools that this server does not have, or hidden thoughts
}

std::optional<ApiError> add_turn(const json& message, const std::string& place, ChatBody& body) {
    if (!message.is_object()) return bad_field(place, "must be an object");
    const std::string role = text_at(message, "role");
    const json content = message.value("content", json{});
    const std::string inner = place + ".content";
    if (role == "system") {
        ApiResult<std::string> text = system_text(content, inner);
        if (!text) return text.error();
        if (!text.value().empty()) body.add_system(text.value());
        return {};
    }
    if (role != "user" && role != "assistant")
        return bad_field(place + ".role", "must be user, assistant or system");
    if (content.is_string()) {
        const auto& text = content.get_ref<const std::string&>();
        role == "user" ? body.add_user(text) : body.add_text(text);
        return {};
    }
    if (!content.is_array()) return bad_field(inner, "must be a string or a list of blocks");
    for (std::size_t i = 0; i < content.size(); ++i) {
        const std::string name = fmt::format("{}[{}]", inner, i);
        if (!content[i].is_object()) return bad_field(name, "must be an object");
        const auto error = role == "user" ? add_user_block(content[i], name, body)
                                          : add_assistant_block(content[i], name, body);
        if (error) return error;
    }
    return {};
}

/// In the form of chats; those that have a type of their own run elsewhere.
json functions_of_tools(const json& tools) {
    json functions = json::array();
    for (const json& tool : tools) {
        if (!tool.is_object()) continue;
        const std::string type = text_at(tool, "type");
        if (!type.empty() && type != "custom") continue;
        json function{{"name", tool.value("name", json{})}};
        const auto description = tool.find("description");
        if (description != tool.end() && !description->is_null())
            function["description"] = *description;
        const auto schema = tool.find("input_schema");
        if (schema != tool.end() && !schema->is_null()) function["parameters"] = *schema;
        functions.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    return functions;
}

std::optional<ApiError> move_choice(Fields& fields, json& common) {
    const json* choice = fields.object("tool_choice");
    if (choice == nullptr) return fields.error();
    const std::string type = text_at(*choice, "type");
    if (type == "auto" || type == "none") {
        common["tool_choice"] = type;
    } else if (type == "any") {
        common["tool_choice"] = "required";
    } else if (type == "tool") {
        common["tool_choice"] = {{"type", "function"},
                                 {"function", {{"name", text_at(*choice, "name")}}}};
    } else {
        return bad_field("tool_choice.type", "must be auto, any, tool or none");
    }
    const auto alone = choice->find("disable_parallel_tool_use");
    if (alone != choice->end() && *alone == true) common["parallel_tool_calls"] = false;
    return {};
}

void move_output(Fields& fields, json& common) {
    if (const json* thinking = fields.object("thinking")) {
        json arguments = common.value("chat_template_kwargs", json::object());
        if (arguments.is_object() && !arguments.contains("enable_thinking"))
            arguments["enable_thinking"] = text_at(*thinking, "type") != "disabled";
        common["chat_template_kwargs"] = std::move(arguments);
    }
    const json* config = fields.object("output_config");
    if (config != nullptr && config->contains("effort"))
        common["reasoning_effort"] = config->at("effort");
    const json* format = fields.object("output_format");
    if (config != nullptr && config->contains("format")) format = &config->at("format");
    if (format == nullptr || !format->is_object()) return;
    if (text_at(*format, "type") == "json_schema")
        common["response_format"] = {
            {"type", "json_schema"},
            {"json_schema", {{"schema", format->value("schema", json{})}}}};
}

ApiResult<json> turns_of(Fields& fields) {
    ChatBody body;
    if (const json* system = fields.find("system")) {
        ApiResult<std::string> text = system_text(*system, "system");
        if (!text) return text.error();
        if (!text.value().empty()) body.add_system(text.value());
    }
    const json* messages = fields.list("messages", kMessagesMax);
    if (fields.error()) return *fields.error();
    if (messages == nullptr) return bad_field("messages", "is missing");
    if (messages->empty()) return bad_field("messages", "must not be empty");
    for (std::size_t i = 0; i < messages->size(); ++i) {
        if (const auto error = add_turn((*messages)[i], fmt::format("messages[{}]", i), body))
            return *error;
    }
    return body.messages();
}

}  // namespace

std::string without_billing_line(const std::string& text) {
    const std::size_t at = text.starts_with(kBilling) ? 0 : text.find("\n" + std::string{kBilling});
    if (at == text.npos) return text;
    const std::size_t end = std::min(text.find('\n', at + 1), text.size());
    const std::size_t rest = at == 0 ? std::min(end + 1, text.size()) : end;
    return text.substr(0, at) + text.substr(rest);
}

ApiResult<json> chat_body_of_messages(const json& body) {
    Fields fields{body};
    ApiResult<json> messages = turns_of(fields);
    if (!messages) return messages;
    json common = body;
    for (const char* name : {"system", "tools", "tool_choice", "stop_sequences", "thinking",
                             "output_config", "output_format", "n", "stream_options", "container"})
        common.erase(name);
    common["messages"] = std::move(messages.value());
    if (const json* stops = fields.find("stop_sequences")) common["stop"] = *stops;
    const json* tools = fields.list("tools", kToolsMax);
    if (tools != nullptr) common["tools"] = functions_of_tools(*tools);
    if (const auto error = move_choice(fields, common)) return *error;
    move_output(fields, common);
    if (fields.error()) return *fields.error();
    return common;
}

}  // namespace paceline::serve

#include "launch/api/chat_request.hpp"

#include <fmt/core.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "launch/api/fields.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using nlohmann::json;

ApiResult<std::string> role_of(const json& message, const std::string& place) {
    const std::string name = place + ".role";
    const auto at = message.find("role");
    if (at == message.end() || !at->is_string()) return bad_field(name, "must be a string");
    const auto& role = at->get_ref<const std::string&>();
    if (role == "developer") return std::string{"system"};
    if (role == "system" || role == "user" || role == "assistant") return role;
    if (role == "tool" || role == "function")
        return not_implemented(name, name + ": this server does not implement tools");
    return bad_field(name, "'" + visible(role) + "' must be system, developer, user or assistant");
}

ApiResult<std::string> joined_parts(const json& parts, const std::string& place) {
    std::string text;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const json& part = parts[i];
        const std::string name = fmt::format("{}[{}]", place, i);
        if (part.is_string()) {
            text += part.get_ref<const std::string&>();
            continue;
        }
        if (!part.is_object()) return bad_field(name, "must be an object with type and text");
        if (part.value("type", json{}) != "text")
            return bad_field(name, "must be of type \"text\"; the model reads nothing else");
        const auto at = part.find("text");
        if (at == part.end() || !at->is_string())
            return bad_field(name + ".text", "must be a string");
        text += at->get_ref<const std::string&>();
    }
    return text;
}

/// An assistant's message may have none.
ApiResult<std::string> content_of(const json& message,
                                  const std::string& role,
                                  const std::string& place) {
    const std::string name = place + ".content";
    const auto at = message.find("content");
    if (at == message.end() || at->is_null()) {
        if (role == "assistant") return std::string{};
        return bad_field(name, "is missing");
    }
    if (at->is_string()) return at->get<std::string>();
    if (at->is_array()) return joined_parts(*at, name);
    return bad_field(name, "must be a string or a list of text parts");
}

ApiResult<json> normal_message(const json& message, const std::string& place) {
    if (!message.is_object()) return bad_field(place, "must be an object");
    ApiResult<std::string> role = role_of(message, place);
    if (!role) return role.error();
    for (const char* name : {"tool_calls", "function_call", "tool_call_id"}) {
        const auto at = message.find(name);
        if (at == message.end() || at->is_null() || at->empty()) continue;
        const std::string full = place + "." + name;
        return not_implemented(full, full + ": this server does not implement tools");
    }
    ApiResult<std::string> content = content_of(message, role.value(), place);
    if (!content) return content.error();
    json normal{{"role", role.value()}, {"content", content.value()}};
    for (const char* name : {"name", "reasoning_content"}) {
        const auto at = message.find(name);
        if (at == message.end() || at->is_null()) continue;
        if (!at->is_string()) return bad_field(place + "." + name, "must be a string");
        normal[name] = *at;
    }
    return normal;
}

/// Names that the server itself gives to the template.
bool is_own_name(const std::string& name) {
    return name == "messages" || name == "tools" || name == "documents" ||
           name == "add_generation_prompt" || name.ends_with("_token");
}

ApiResult<std::string> arguments_of(Fields& fields) {
    const json* given = fields.object("chat_template_kwargs");
    if (fields.error()) return *fields.error();
    if (given == nullptr || given->empty()) return std::string{};
    if (given->size() > kTemplateArgumentsMax)
        return bad_field("chat_template_kwargs",
                         fmt::format("has more than {} entries", kTemplateArgumentsMax));
    for (const auto& [name, value] : given->items()) {
        if (is_own_name(name))
            return bad_field("chat_template_kwargs." + visible(name), "cannot be changed");
    }
    return given->dump();
}

}  // namespace

ApiResult<ChatRequest> chat_request(const json& body) {
    Fields fields{body};
    const json* messages = fields.list("messages", kMessagesMax);
    if (fields.error()) return *fields.error();
    if (messages == nullptr) return bad_field("messages", "is missing");
    if (messages->empty()) return bad_field("messages", "must not be empty");
    json normal = json::array();
    for (std::size_t i = 0; i < messages->size(); ++i) {
        ApiResult<json> message = normal_message((*messages)[i], fmt::format("messages[{}]", i));
        if (!message) return message.error();
        normal.push_back(std::move(message.value()));
    }
    ApiResult<std::string> arguments = arguments_of(fields);
    if (!arguments) return arguments.error();
    return ChatRequest{.messages = normal.dump(), .arguments = std::move(arguments.value())};
}

}  // namespace paceline::serve

#include "launch/api/chat_request.hpp"

#include <fmt/core.h>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "launch/api/fields.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t kEffortBytesMax = 64;

ApiResult<std::string> role_of(const json& message, const std::string& place) {
    const std::string name = place + ".role";
    const auto at = message.find("role");
    if (at == message.end() || !at->is_string()) return bad_field(name, "must be a string");
    const auto& role = at->get_ref<const std::string&>();
    if (role == "developer") return std::string{"system"};
    if (role == "system" || role == "user" || role == "assistant") return role;
    if (role == "tool" || role == "function") return std::string{"tool"};
    return bad_field(name,
                     "'" + visible(role) + "' must be system, developer, user, assistant or tool");
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

ApiResult<json> normal_call(const json& call, const std::string& place) {
    if (!call.is_object()) return bad_field(place, "must be an object");
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object())
        return bad_field(place + ".function", "must be an object");
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string())
        return bad_field(place + ".function.name", "must be a string");
    const auto given = function->find("arguments");
    json arguments = given == function->end() || given->is_null() ? json("{}") : *given;
    if (arguments == "") arguments = "{}";
    if (!arguments.is_string() && !arguments.is_object())
        return bad_field(place + ".function.arguments", "must be a JSON object as a string");
    const auto id = call.find("id");
    json normal{{"type", "function"},
                {"function", {{"name", *name}, {"arguments", std::move(arguments)}}}};
    if (id == call.end() || id->is_null()) return normal;
    if (!id->is_string()) return bad_field(place + ".id", "must be a string");
    normal["id"] = *id;
    return normal;
}

ApiResult<json> normal_calls(const json& calls, const std::string& place) {
    if (!calls.is_array()) return bad_field(place, "must be a list");
    json normal = json::array();
    for (std::size_t i = 0; i < calls.size(); ++i) {
        ApiResult<json> call = normal_call(calls[i], fmt::format("{}[{}]", place, i));
        if (!call) return call;
        normal.push_back(std::move(call.value()));
    }
    return normal;
}

/// Members that templates may read; `reasoning` counts where `reasoning_content` is absent.
std::optional<ApiError> copy_texts(const json& message, const std::string& place, json& normal) {
    constexpr std::pair<const char*, const char*> kTexts[] = {
        {"name", "name"},
        {"tool_call_id", "tool_call_id"},
        {"reasoning_content", "reasoning_content"},
        {"reasoning", "reasoning_content"}};
    for (const auto& [name, as] : kTexts) {
        const auto at = message.find(name);
        if (at == message.end() || at->is_null() || normal.contains(as)) continue;
        if (!at->is_string()) return bad_field(place + "." + name, "must be a string");
        normal[as] = *at;
    }
    return {};
}

ApiResult<json> normal_message(const json& message, const std::string& place) {
    if (!message.is_object()) return bad_field(place, "must be an object");
    ApiResult<std::string> role = role_of(message, place);
    if (!role) return role.error();
    if (const json* old = Fields{message}.find("function_call"); old != nullptr && !old->empty())
        return not_implemented(place + ".function_call",
                               place + ".function_call: the old form of tool_calls");
    ApiResult<std::string> content = content_of(message, role.value(), place);
    if (!content) return content.error();
    json normal{{"role", role.value()}, {"content", content.value()}};
    if (const auto error = copy_texts(message, place, normal)) return *error;
    const json* calls = Fields{message}.find("tool_calls");
    if (calls == nullptr || (calls->is_array() && calls->empty())) return normal;
    if (role.value() != "assistant")
        return bad_field(place + ".tool_calls", "is for messages of the assistant");
    ApiResult<json> read = normal_calls(*calls, place + ".tool_calls");
    if (!read) return read;
    normal["tool_calls"] = std::move(read.value());
    return normal;
}

/// Names that the server itself gives to the template.
bool is_own_name(const std::string& name) {
    return name == "messages" || name == "tools" || name == "documents" ||
           name == "add_generation_prompt" || name.ends_with("_token");
}

/// "none" also switches thoughts off where a template can.
void add_effort(const std::string& effort, json& arguments) {
    if (effort.empty()) return;
    if (!arguments.contains("reasoning_effort")) arguments["reasoning_effort"] = effort;
    if (effort == "none" && !arguments.contains("enable_thinking"))
        arguments["enable_thinking"] = false;
}

ApiResult<std::string> arguments_of(Fields& fields) {
    const json* given = fields.object("chat_template_kwargs");
    std::string effort;
    fields.text("reasoning_effort", effort, kEffortBytesMax);
    if (fields.error()) return *fields.error();
    json arguments = given == nullptr ? json::object() : *given;
    if (arguments.size() > kTemplateArgumentsMax)
        return bad_field("chat_template_kwargs",
                         fmt::format("has more than {} entries", kTemplateArgumentsMax));
    for (const auto& [name, value] : arguments.items()) {
        if (is_own_name(name))
            return bad_field("chat_template_kwargs." + visible(name), "cannot be changed");
    }
    add_effort(effort, arguments);
    return arguments.empty() ? std::string{} : arguments.dump();
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
    ApiResult<ToolRequest> tools = tool_request(body);
    if (!tools) return tools.error();
    return ChatRequest{.messages = normal.dump(),
                       .arguments = std::move(arguments.value()),
                       .tools = std::move(tools.value())};
}

}  // namespace paceline::serve

#include "launch/api/responses/responses_request.hpp"

#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "launch/api/chat_request.hpp"
#include "launch/api/fields.hpp"
#include "launch/api/tools/chat_body.hpp"
#include "model/sampling/token_scores.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;
using Json = nlohmann::ordered_json;

constexpr std::string_view kLogProbs = "message.output_text.logprobs";
constexpr std::size_t kIncludedMax = 32;
constexpr std::size_t kIncludedBytesMax = 256;

/// Of an item; "" for what is no text.
std::string text_in(const json& item, const char* name) {
    const auto at = item.find(name);
    return at != item.end() && at->is_string() ? at->get<std::string>() : std::string{};
}

/// A text, or a list of parts of type input_text, output_text, text, refusal or reasoning_text.
ApiResult<std::string> item_text(const json& content, const std::string& place) {
    if (content.is_string()) return content.get<std::string>();
    if (content.is_null()) return std::string{};
    if (!content.is_array()) return bad_field(place, "must be a string or a list of text parts");
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i) {
        const json& part = content[i];
        const std::string name = fmt::format("{}[{}]", place, i);
        if (!part.is_object()) return bad_field(name, "must be an object with type and text");
        const char* member = part.value("type", json{}) == "refusal" ? "refusal" : "text";
        const auto at = part.find(member);
        if (at == part.end() || !at->is_string())
            return bad_field(name, "must be a part with a text; the model reads nothing else");
        text += at->get_ref<const std::string&>();
    }
    return text;
}

std::optional<ApiError> add_message(const json& item, const std::string& place, ChatBody& body) {
    const json content = item.value("content", json{});
    ApiResult<std::string> text = item_text(content, place + ".content");
    if (!text) return text.error();
    const std::string role = text_in(item, "role");
    if (role == "system" || role == "developer") {
        body.add_system(text.value());
    } else if (role == "user") {
        body.add_user(text.value());
    } else if (role == "assistant") {
        body.add_text(text.value());
    } else {
        return bad_field(place + ".role", "must be system, developer, user or assistant");
    }
    return {};
}

std::optional<ApiError> add_reasoning(const json& item, const std::string& place, ChatBody& body) {
    std::string thought;
    for (const char* name : {"content", "summary"}) {
        const auto at = item.find(name);
        if (!thought.empty() || at == item.end() || at->is_null()) continue;
        ApiResult<std::string> text = item_text(*at, place + "." + name);
        if (!text) return text.error();
        thought = std::move(text.value());
    }
    if (!thought.empty()) body.add_thought(thought);
    return {};
}

std::optional<ApiError> add_item(const json& item, const std::string& place, ChatBody& body) {
    if (!item.is_object()) return bad_field(place, "must be an object");
    const std::string type = item.contains("type") ? text_in(item, "type") : "message";
    if (type == "message") return add_message(item, place, body);
    if (type == "reasoning") return add_reasoning(item, place, body);
    if (type == "function_call") {
        if (text_in(item, "name").empty()) return bad_field(place + ".name", "is missing");
        body.add_call(text_in(item, "call_id"), text_in(item, "name"), text_in(item, "arguments"));
    } else if (type == "function_call_output") {
        ApiResult<std::string> text = item_text(item.value("output", json{}), place + ".output");
        if (!text) return text.error();
        body.add_result(text_in(item, "call_id"), text.value());
    } else if (type == "item_reference") {
        return bad_field(place, "refers to an item, and this server stores none");
    }
    return {};
}

ApiResult<json> messages_of(Fields& fields) {
    ChatBody body;
    std::string instructions;
    fields.text("instructions", instructions, std::string{}.max_size());
    if (fields.error()) return *fields.error();
    if (!instructions.empty()) body.add_system(instructions);
    const json* input = fields.find("input");
    if (input != nullptr && input->is_string()) {
        body.add_user(input->get<std::string>());
        return body.messages();
    }
    const json* items = fields.list("input", kMessagesMax);
    if (fields.error()) return *fields.error();
    for (std::size_t i = 0; items != nullptr && i < items->size(); ++i) {
        if (const auto error = add_item((*items)[i], fmt::format("input[{}]", i), body))
            return *error;
    }
    return body.messages();
}

/// Functions in the form of chats; others are skipped.
json functions_of(const json& tools) {
    json functions = json::array();
    for (const json& tool : tools) {
        if (!tool.is_object() || tool.value("type", json{}) != "function") continue;
        if (tool.contains("function")) {
            functions.push_back(tool);
            continue;
        }
        json function = json::object();
        for (const char* name : {"name", "description", "parameters", "strict"}) {
            const auto at = tool.find(name);
            if (at != tool.end() && !at->is_null()) function[name] = *at;
        }
        functions.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    return functions;
}

/// {"type": "json_schema", "name", "schema", "strict"} has the schema one level higher than chats.
json response_format_of(const json& format) {
    if (!format.is_object() || format.value("type", json{}) != "json_schema" ||
        format.contains("json_schema"))
        return format;
    json inner = format;
    inner.erase("type");
    return {{"type", "json_schema"}, {"json_schema", std::move(inner)}};
}

std::optional<ApiError> refused(const Fields& fields) {
    for (const char* name : {"previous_response_id", "conversation"}) {
        if (fields.find(name) != nullptr)
            return bad_field(name,
                             "this server stores no responses; send the whole conversation as "
                             "input, with \"store\": false");
    }
    if (fields.find("prompt") != nullptr) return bad_field("prompt", "no prompts are stored here");
    const json* background = fields.find("background");
    if (background != nullptr && *background != false)
        return bad_field("background", "this server stores no responses");
    return {};
}

/// What they would add is of tools that this server does not have, or is always null.
bool adds_nothing(const std::string& included) {
    constexpr std::string_view kNothing[] = {
        "reasoning.encrypted_content",   "file_search_call.results",
        "web_search_call.results",       "web_search_call.action.sources",
        "message.input_image.image_url", "computer_call_output.output.image_url",
        "code_interpreter_call.outputs"};
    return std::find(std::begin(kNothing), std::end(kNothing), included) != std::end(kNothing);
}

/// Log probabilities are part of the response if `include` names them.
std::optional<ApiError> move_scores(Fields& fields, json& common) {
    std::vector<std::string> included;
    std::optional<std::int64_t> top;
    fields.texts("include", included, kIncludedMax, kIncludedBytesMax);
    fields.integer("top_logprobs", top, 0, kTopScoresMax);
    if (fields.error()) return fields.error();
    bool wanted = false;
    for (std::size_t i = 0; i < included.size(); ++i) {
        if (included[i] != kLogProbs && !adds_nothing(included[i]))
            return bad_field(fmt::format("include[{}]", i), "'" + visible(included[i]) +
                                                                "' cannot be included; " +
                                                                std::string{kLogProbs} + " can");
        wanted = wanted || included[i] == kLogProbs;
    }
    for (const char* name : {"include", "logprobs", "top_logprobs"}) common.erase(name);
    if (!wanted) return {};
    common["logprobs"] = true;
    common["top_logprobs"] = top.value_or(0);
    return {};
}

void move_limits(Fields& fields, json& common) {
    if (const json* most = fields.find("max_output_tokens")) common["max_tokens"] = *most;
    if (const json* text = fields.object("text")) {
        const auto format = text->find("format");
        if (format != text->end()) common["response_format"] = response_format_of(*format);
    }
    if (const json* reasoning = fields.object("reasoning")) {
        const auto effort = reasoning->find("effort");
        if (effort != reasoning->end()) common["reasoning_effort"] = *effort;
    }
}

}  // namespace

ApiResult<json> chat_body_of_responses(const json& body) {
    Fields fields{body};
    if (const auto error = refused(fields)) return *error;
    ApiResult<json> messages = messages_of(fields);
    if (!messages) return messages;
    json common = body;
    for (const char* name : {"input", "instructions", "tools", "max_output_tokens", "text",
                             "reasoning", "stream_options", "prompt", "background", "n"})
        common.erase(name);
    common["messages"] = std::move(messages.value());
    if (const json* tools = fields.list("tools", kToolsMax)) common["tools"] = functions_of(*tools);
    move_limits(fields, common);
    if (const auto error = move_scores(fields, common)) return *error;
    if (fields.error()) return *fields.error();
    return common;
}

Json repeated_fields(const json& body) {
    const auto given = [&](const char* name, const json& otherwise) {
        const auto at = body.find(name);
        return at == body.end() || at->is_null() ? Json(otherwise) : Json(*at);
    };
    return {{"instructions", given("instructions", nullptr)},
            {"max_output_tokens", given("max_output_tokens", nullptr)},
            {"metadata", given("metadata", json::object())},
            {"parallel_tool_calls", given("parallel_tool_calls", true)},
            {"previous_response_id", nullptr},
            {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
            {"store", false},
            {"temperature", given("temperature", nullptr)},
            {"text", given("text", {{"format", {{"type", "text"}}}})},
            {"tool_choice", given("tool_choice", "auto")},
            {"tools", given("tools", json::array())},
            {"top_logprobs", given("top_logprobs", 0)},
            {"top_p", given("top_p", nullptr)},
            {"truncation", "disabled"},
            {"user", given("user", nullptr)}};
}

}  // namespace paceline::serve

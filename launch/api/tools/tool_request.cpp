#include "launch/api/tools/tool_request.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "launch/api/fields.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kChoices =
    "must be \"none\", \"auto\", \"required\", a function or allowed_tools";

bool is_function_name(const std::string& name) {
    const auto allowed = [](char c) { return c > ' ' && c != '"' && c != '\\' && c != '\x7f'; };
    return !name.empty() && name.size() <= kFunctionNameBytesMax &&
           std::all_of(name.begin(), name.end(), allowed);
}

ApiResult<ToolFunction> function_of(const json& tool, const std::string& place) {
    if (!tool.is_object()) return bad_field(place, "must be an object");
    if (tool.value("type", json("function")) != "function")
        return bad_field(place + ".type", "must be \"function\"");
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object())
        return bad_field(place + ".function", "must be an object");
    ToolFunction read;
    Fields fields{*function, place + ".function"};
    fields.text("name", read.name, kFunctionNameBytesMax);
    std::string description;
    fields.text("description", description, std::string{}.max_size());
    const json* parameters = fields.object("parameters");
    if (fields.error()) return *fields.error();
    if (!is_function_name(read.name))
        return bad_field(place + ".function.name",
                         fmt::format("must be a name of 1 to {} bytes, without blanks and quotes",
                                     kFunctionNameBytesMax));
    if (parameters != nullptr && !parameters->empty()) read.parameters = parameters->dump();
    return read;
}

/// Only those that the choice names may be called.
std::optional<ApiError> keep(ToolRequest& request,
                             const std::vector<std::string>& names,
                             const std::string& place) {
    std::vector<ToolFunction> kept;
    for (const std::string& name : names) {
        const auto at = std::find_if(request.functions.begin(), request.functions.end(),
                                     [&](const ToolFunction& each) { return each.name == name; });
        if (at == request.functions.end())
            return bad_field(place, "'" + visible(name) + "' is none of the tools");
        kept.push_back(*at);
    }
    if (kept.empty()) return bad_field(place, "names no tool");
    request.functions = std::move(kept);
    return {};
}

/// "" for what names no function.
std::string name_in(const json& choice) {
    const auto function = choice.find("function");
    const json& holder = function != choice.end() && function->is_object() ? *function : choice;
    const auto name = holder.find("name");
    return name != holder.end() && name->is_string() ? name->get<std::string>() : std::string{};
}

/// A word: false if it is another one.
bool choose(const json& word, ToolRequest& request) {
    if (word == "none") {
        request = {};
    } else if (word == "required" || word == "any") {
        request.choice = ToolChoice::Required;
    } else if (word != "auto") {
        return false;
    }
    return true;
}

std::optional<ApiError> read_allowed(const json& choice, ToolRequest& request) {
    const std::string place = "tool_choice.allowed_tools";
    const auto inner = choice.find("allowed_tools");
    const json& allowed = inner != choice.end() && inner->is_object() ? *inner : choice;
    const auto tools = allowed.find("tools");
    if (tools == allowed.end() || !tools->is_array())
        return bad_field(place + ".tools", "must be a list");
    std::vector<std::string> names;
    if (tools->size() > kToolsMax)
        return bad_field(place + ".tools", fmt::format("has more than {} names", kToolsMax));
    for (const json& each : *tools) {
        std::string name = each.is_object() ? name_in(each) : "";
        if (std::find(names.begin(), names.end(), name) == names.end())
            names.push_back(std::move(name));
    }
    if (const auto error = keep(request, names, place + ".tools")) return error;
    if (!choose(allowed.value("mode", json("auto")), request))
        return bad_field(place + ".mode", "must be \"auto\" or \"required\"");
    return {};
}

std::optional<ApiError> read_choice(const json& choice, ToolRequest& request) {
    if (choice.is_string()) {
        if (!choose(choice, request)) return bad_field("tool_choice", kChoices);
        if (request.choice == ToolChoice::Required && request.none())
            return bad_field("tool_choice", "there are no tools");
        return {};
    }
    if (!choice.is_object()) return bad_field("tool_choice", kChoices);
    if (choice.value("type", json{}) == "allowed_tools") return read_allowed(choice, request);
    const std::string name = name_in(choice);
    if (name.empty()) return bad_field("tool_choice", kChoices);
    request.choice = ToolChoice::Required;
    return keep(request, {name}, "tool_choice");
}

}  // namespace

ApiResult<ToolRequest> tool_request(const json& body) {
    ToolRequest request;
    Fields fields{body};
    const json* tools = fields.list("tools", kToolsMax);
    fields.boolean("parallel_tool_calls", request.parallel);
    if (fields.error()) return *fields.error();
    for (std::size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
        ApiResult<ToolFunction> function = function_of((*tools)[i], fmt::format("tools[{}]", i));
        if (!function) return function.error();
        for (const ToolFunction& other : request.functions) {
            if (other.name == function.value().name)
                return bad_field(fmt::format("tools[{}].function.name", i),
                                 "two tools have this name");
        }
        request.functions.push_back(std::move(function.value()));
    }
    if (!request.none()) request.list = tools->dump();
    const bool parallel = request.parallel;
    if (const json* choice = fields.find("tool_choice")) {
        if (const auto error = read_choice(*choice, request)) return *error;
    }
    request.parallel = parallel;
    return request;
}

}  // namespace paceline::serve

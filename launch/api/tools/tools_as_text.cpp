#include "launch/api/tools/tools_as_text.hpp"

#include <map>

#include <nlohmann/json.hpp>

#include "launch/api/json_reader.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kTools =
    "You can call tools. To call one, answer with nothing but {\"name\": its name, \"arguments\": "
    "an object with its parameters}; to call several, with a JSON list of such objects. These are "
    "the tools:\n";

/// Arguments that are a text of JSON stand in it as the object that they are.
json call_of(const json& call) {
    const json& function = call.at("function");
    json arguments = function.value("arguments", json::object());
    if (arguments.is_string()) {
        ApiResult<json> read = read_json(arguments.get_ref<const std::string&>());
        arguments = read ? std::move(read.value()) : json::object();
    }
    return {{"name", function.at("name")}, {"arguments", std::move(arguments)}};
}

void describe(json& messages, const std::string& tools) {
    const bool has_system = !messages.empty() && messages.front().at("role") == "system";
    const std::string before =
        has_system ? messages.front().at("content").get<std::string>() + "\n\n" : std::string{};
    json system{{"role", "system"}, {"content", before + kTools + tools}};
    if (has_system) {
        messages.front() = std::move(system);
    } else {
        messages.insert(messages.begin(), std::move(system));
    }
}

}  // namespace

void tools_as_text(json& messages, const std::string& tools) {
    std::map<std::string, std::string> names;  // of calls, by their ids
    for (json& message : messages) {
        const auto calls = message.find("tool_calls");
        if (calls != message.end()) {
            json list = json::array();
            for (const json& call : *calls) {
                list.push_back(call_of(call));
                names[call.value("id", std::string{})] = list.back().at("name").get<std::string>();
            }
            std::string content = message.at("content").get<std::string>();
            if (!content.empty()) content += "\n";
            message["content"] = content + (list.size() == 1 ? list.front() : list).dump();
            message.erase("tool_calls");
        }
        if (message.at("role") != "tool") continue;
        const auto known = names.find(message.value("tool_call_id", std::string{}));
        const std::string name =
            known != names.end() ? known->second : message.value("name", std::string{"the tool"});
        message = {
            {"role", "user"},
            {"content", "Result of " + name + ":\n" + message.at("content").get<std::string>()}};
    }
    if (!tools.empty()) describe(messages, tools);
}

}  // namespace paceline::serve

#include "launch/api/tools/parameter_texts.hpp"

#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

bool all_strings(const Json& values) {
    return values.is_array() && !values.empty() &&
           std::all_of(values.begin(), values.end(),
                       [](const Json& each) { return each.is_string(); });
}

/// Nothing but strings, by its type or its values. Values of other schemas are written as JSON.
bool is_string(const Json& schema) {
    if (schema.contains("enum")) return all_strings(schema.at("enum"));
    if (schema.contains("const")) return schema.at("const").is_string();
    return schema.contains("type") && schema.at("type") == "string";
}

/// A grammar allows blanks around these, which are not part of them.
bool is_word(const Json& schema) {
    constexpr const char* kKeywords[] = {"enum",   "const",     "pattern",
                                         "format", "minLength", "maxLength"};
    return std::any_of(std::begin(kKeywords), std::end(kKeywords),
                       [&](const char* keyword) { return schema.contains(keyword); });
}

}  // namespace

ParameterTexts parameter_texts(const ToolFunction& function) {
    ParameterTexts found{.tool = function.name};
    if (function.parameters.empty()) return found;
    const Json schema = Json::parse(function.parameters, nullptr, false);
    const auto properties = schema.is_object() ? schema.find("properties") : schema.end();
    if (properties == schema.end() || !properties->is_object()) return found;
    for (const auto& [name, property] : properties->items()) {
        if (!property.is_object() || !is_string(property)) continue;
        (is_word(property) ? found.words : found.texts).push_back(name);
    }
    return found;
}

}  // namespace paceline::serve

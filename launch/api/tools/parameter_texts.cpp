#include "launch/api/tools/parameter_texts.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDepthMax = 16;  // of references, which may be circular

/// What a schema leaves of all values.
struct Shape {
    bool text = false;
    bool null = false;
    bool word = false;  // see is_word()
};

/// Nothing: the value may be something else, which is written as JSON.
using Found = std::optional<Shape>;

/// A grammar allows blanks around these, which are not part of them.
bool is_word(const Json& schema) {
    constexpr const char* kKeywords[] = {"enum",   "const",     "pattern",
                                         "format", "minLength", "maxLength"};
    return std::any_of(std::begin(kKeywords), std::end(kKeywords),
                       [&](const char* keyword) { return schema.contains(keyword); });
}

Found either(const Found& a, const Found& b) {
    if (!a || !b) return {};
    return Shape{a->text || b->text, a->null || b->null, a->word || b->word};
}

Found both(const Found& a, const Found& b) {
    if (!a || !b) return a ? a : b;
    return Shape{a->text && b->text, a->null && b->null, a->word || b->word};
}

template <typename ShapeOf>
Found any_of(const Json& list, const ShapeOf& shape_of) {
    if (!list.is_array() || list.empty()) return {};
    Found found = Shape{};
    for (const Json& each : list) found = either(found, shape_of(each));
    return found;
}

Found of_value(const Json& value) {
    if (value.is_string()) return Shape{.text = true};
    if (value.is_null()) return Shape{.null = true};
    return {};
}

Found of_type(const Json& type) {
    if (type == "string") return Shape{.text = true};
    if (type == "null") return Shape{.null = true};
    return {};
}

/// What "#/..." points at, through objects; null: nothing.
const Json* referred(const Json& root, const Json& reference) {
    if (!reference.is_string()) return nullptr;
    const auto& path = reference.get_ref<const std::string&>();
    if (path.empty() || path.front() != '#') return nullptr;
    const Json* at = &root;
    for (std::size_t i = 1; i < path.size();) {
        if (path[i] != '/') return nullptr;
        std::string key;
        for (++i; i < path.size() && path[i] != '/'; ++i) {
            const bool escape = path[i] == '~' && i + 1 < path.size();
            key += escape ? (path[++i] == '1' ? '/' : '~') : path[i];
        }
        const auto found = at->is_object() ? at->find(key) : at->end();
        if (found == at->end()) return nullptr;
        at = &*found;
    }
    return at;
}

/// Every keyword narrows what the others leave.
Found shape_of(const Json& schema, const Json& root, int depth) {
    if (!schema.is_object() || depth > kDepthMax) return {};
    const auto inner = [&](const Json& each) { return shape_of(each, root, depth + 1); };
    const auto given = [&](const char* keyword) {
        const auto at = schema.find(keyword);
        return at != schema.end() ? &*at : nullptr;
    };
    Found found;
    if (const Json* type = given("type"))
        found = type->is_array() ? any_of(*type, of_type) : of_type(*type);
    if (const Json* values = given("enum")) found = both(found, any_of(*values, of_value));
    if (const Json* value = given("const")) found = both(found, of_value(*value));
    for (const char* keyword : {"anyOf", "oneOf"})
        if (const Json* list = given(keyword)) found = both(found, any_of(*list, inner));
    if (const Json* list = given("allOf"); list != nullptr && list->is_array())
        for (const Json& each : *list) found = both(found, inner(each));
    if (const Json* reference = given("$ref"))
        if (const Json* other = referred(root, *reference)) found = both(found, inner(*other));
    if (found && is_word(schema)) found->word = true;
    return found;
}

}  // namespace

ParameterTexts parameter_texts(const ToolFunction& function) {
    ParameterTexts found{.tool = function.name};
    if (function.parameters.empty()) return found;
    const Json schema = Json::parse(function.parameters, nullptr, false);
    const auto properties = schema.is_object() ? schema.find("properties") : schema.end();
    if (properties == schema.end() || !properties->is_object()) return found;
    for (const auto& [name, property] : properties->items()) {
        const Found shape = shape_of(property, schema, 0);
        if (!shape || !shape->text) continue;
        (shape->word ? found.words : found.texts).push_back(name);
        if (shape->null) found.nullable.push_back(name);
    }
    return found;
}

}  // namespace paceline::serve

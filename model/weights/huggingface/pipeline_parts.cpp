#include "model/weights/huggingface/pipeline_parts.hpp"

#include "model/weights/huggingface/json_keys.hpp"

namespace paceline::huggingface {

using nlohmann::json;

const json& member(const json& object, const char* key) {
    static const json null = nullptr;
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
}

std::string type_of(const json& part) {
    return text_or_empty(member(part, "type"));
}

bool is_true(const json& value) {
    return value.is_boolean() && value.get<bool>();
}

std::string text_or_empty(const json& value) {
    return value.is_string() ? value.get<std::string>() : "";
}

std::vector<const json*> parts_of(const json& part, const char* list) {
    std::vector<const json*> parts;
    if (part.is_null()) return parts;
    const json& inner = member(part, list);
    if (type_of(part) != "Sequence" || !inner.is_array()) return {&part};
    for (const json& one : inner) parts.push_back(&one);
    return parts;
}

std::string refused_part(const char* what, const json& part) {
    const json& type = member(part, "type");
    return std::string{"tokenizer.json: the "} + what + " " +
           (type.is_string() ? json_text_of(type) : json_text_of(part)) + " is not supported";
}

}  // namespace paceline::huggingface

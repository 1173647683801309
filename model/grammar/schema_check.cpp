#include "model/grammar/schema_check.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <fmt/core.h>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

namespace paceline {
namespace {

using Json = nlohmann::json;

constexpr int kDepthMax = 200;

/// They allow and forbid nothing.
constexpr std::array kAnnotations = {
    "$schema", "$id",         "$comment",    "$defs",         "definitions",   "title",
    "default", "description", "deprecated",  "examples",      "readOnly",      "writeOnly",
    "$anchor", "id",          "$vocabulary", "discriminator", "$dynamicAnchor"};

/// Keywords that the library ignores.
constexpr std::array kIgnored = {
    "not",           "if",          "contains",      "minContains",       "maxContains",
    "propertyNames", "$dynamicRef", "$recursiveRef", "dependentRequired", "dependentSchemas",
    "dependencies"};

Error refused(const std::string& place, const std::string& why) {
    return {Errc::BadArgument,
            fmt::format("{}: {}", place.empty() ? "the whole schema" : place, why)};
}

bool is_annotation(const std::string& key) {
    return std::find(kAnnotations.begin(), kAnnotations.end(), key) != kAnnotations.end();
}

class SchemaCheck {
public:
    explicit SchemaCheck(const Json& root) : root_{root} {}

    Status check(const Json& schema, const std::string& place, int depth = 0) {
        if (!schema.is_object()) return {};  // true, false, or refused by the library
        if (depth > kDepthMax)
            return refused(place, fmt::format("schemas are nested more than {} deep", kDepthMax));
        for (const char* keyword : kIgnored) {
            if (schema.contains(keyword))
                return refused(place, fmt::format("\"{}\" is not supported", keyword));
        }
        const auto unique = schema.find("uniqueItems");
        if (unique != schema.end() && *unique == true)
            return refused(place, "\"uniqueItems\" is not supported");
        if (schema.contains("$ref")) return check_reference(schema, place, depth);
        for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
            if (!schema.contains(keyword)) continue;
            if (Status s = check_alone(schema, keyword, place); !s) return s;
        }
        if (Status s = check_required(schema, place); !s) return s;
        if (Status s = check_pattern(schema, place); !s) return s;
        return check_below(schema, place, depth);
    }

private:
    /// A reference into this schema, with nothing beside it.
    Status check_reference(const Json& schema, const std::string& place, int depth) {
        if (Status s = check_alone(schema, "$ref", place); !s) return s;
        const Json& named = schema.at("$ref");
        const std::string text = named.is_string() ? named.get<std::string>() : std::string{};
        if (text != "#" && !text.starts_with("#/"))
            return refused(
                place,
                fmt::format("\"$ref\": \"{}\": only references of the form \"#/...\" are supported",
                            text));
        if (!followed_.insert(text).second) return {};
        try {
            const Json::json_pointer pointer{text.substr(1)};
            if (!root_.contains(pointer))
                return refused(place, fmt::format("\"$ref\": there is no {}", text));
            return check(root_.at(pointer), text.substr(1), depth + 1);
        } catch (const std::exception& error) {
            return refused(
                place, fmt::format("\"$ref\": \"{}\" is no JSON pointer: {}", text, error.what()));
        }
    }

    /// What stands beside these the library ignores. The type of all alternatives may stand there.
    static Status check_alone(const Json& schema,
                              const std::string& keyword,
                              const std::string& place) {
        const Json& own = schema.at(keyword);
        for (const auto& [key, value] : schema.items()) {
            if (key == keyword || is_annotation(key)) continue;
            const bool same =
                key == "type" && own.is_array() &&
                std::all_of(own.begin(), own.end(), [&value = value](const Json& each) {
                    return each.is_object() && each.contains("type") && each.at("type") == value;
                });
            if (same) continue;
            return refused(place,
                           fmt::format("\"{}\" beside \"{}\" is not supported", key, keyword));
        }
        if (keyword == "allOf" && own.is_array() && own.size() > 1)
            return refused(place, "\"allOf\" of several schemas is not supported");
        return {};
    }

    /// Names that no property has are not enforced.
    static Status check_required(const Json& schema, const std::string& place) {
        const auto required = schema.find("required");
        if (required == schema.end() || !required->is_array()) return {};
        const auto properties = schema.find("properties");
        for (const Json& name : *required) {
            const bool known = name.is_string() && properties != schema.end() &&
                               properties->is_object() &&
                               properties->contains(name.get<std::string>());
            if (!known)
                return refused(
                    place,
                    fmt::format("\"required\": {} is not among the \"properties\"", name.dump()));
        }
        return {};
    }

    /// A control character would stand in the string as it is, which is no JSON.
    static Status check_pattern(const Json& schema, const std::string& place) {
        const auto pattern = schema.find("pattern");
        if (pattern == schema.end() || !pattern->is_string()) return {};
        const auto& text = pattern->get_ref<const std::string&>();
        for (std::size_t i = 0; i + 1 < text.size(); ++i) {
            if (text[i] != '\\') continue;
            const char what = text[++i];
            const std::string_view code = std::string_view{text}.substr(i + 1);
            const bool control =
                std::string_view{"tnrfv0c"}.find(what) != std::string_view::npos ||
                (what == 'x' && (code.starts_with('0') || code.starts_with('1'))) ||
                (what == 'u' && (code.starts_with("000") || code.starts_with("001")));
            if (control)
                return refused(
                    place,
                    fmt::format("\"pattern\": the control character \\{} is not supported", what));
        }
        return {};
    }

    Status check_below(const Json& schema, const std::string& place, int depth) {
        for (const char* keyword :
             {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"}) {
            if (!schema.contains(keyword)) continue;
            if (Status s = check(schema.at(keyword), place + "/" + keyword, depth + 1); !s)
                return s;
        }
        for (const char* keyword : {"properties", "patternProperties", "prefixItems", "items",
                                    "anyOf", "oneOf", "allOf"}) {
            const auto found = schema.find(keyword);
            const bool by_name = std::string_view{keyword}.ends_with("roperties");
            if (found == schema.end() || !(by_name ? found->is_object() : found->is_array()))
                continue;
            for (const auto& [key, value] : found->items()) {
                if (Status s = check(value, place + "/" + keyword + "/" + key, depth + 1); !s)
                    return s;
            }
        }
        return {};
    }

    const Json& root_;
    std::set<std::string> followed_;
};

Result<Json> parsed(std::string_view text) {
    try {
        return Json::parse(text);
    } catch (const Json::exception& error) {
        // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
        const std::string what = error.what();
        const std::size_t begin = what.find("] ");
        return Error{Errc::BadArgument,
                     "no JSON: " + (begin == what.npos ? what : what.substr(begin + 2))};
    }
}

Status check_tag(const Json& part, const std::string& place, int depth) {
    if (depth > kDepthMax) return refused(place, "the tag is nested too deep");
    if (!part.is_structured()) return {};
    for (const auto& [key, value] : part.items()) {
        const std::string below = place + "/" + key;
        const bool schema = part.is_object() && key == "json_schema";
        if (Status s = schema ? SchemaCheck{value}.check(value, below)
                              : check_tag(value, below, depth + 1);
            !s)
            return s;
    }
    return {};
}

}  // namespace

Status check_schema(std::string_view text) {
    const Result<Json> schema = parsed(text);
    if (!schema) return schema.error();
    return SchemaCheck{schema.value()}.check(schema.value(), "");
}

Status check_schemas_of_tag(std::string_view text) {
    const Result<Json> tag = parsed(text);
    if (!tag) return tag.error();
    return check_tag(tag.value(), "", 0);
}

}  // namespace paceline

#include "launch/api/grammar/grammar_request.hpp"

#include <fmt/core.h>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "launch/api/fields.hpp"
#include "launch/api/json_reader.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

using Spec = ApiResult<GrammarSpec>;

struct OldName {
    const char* name;
    const char* form;
};
constexpr OldName kOldNames[] = {{"guided_json", "json"},
                                 {"guided_regex", "regex"},
                                 {"guided_choice", "choice"},
                                 {"guided_grammar", "grammar"}};

Spec text_spec(GrammarKind kind, const json& value, const std::string& place) {
    if (!value.is_string()) return bad_field(place, "must be a string");
    if (value.get_ref<const std::string&>().empty()) return bad_field(place, "must not be empty");
    return GrammarSpec{.kind = kind, .text = value.get<std::string>()};
}

/// The object in a string, which has the limits of a body; nothing: there is none.
std::optional<json> inner_object(const json& text) {
    const auto& bytes = text.get_ref<const std::string&>();
    if (bytes.size() > kGrammarBytesMax) return std::nullopt;
    ApiResult<json> read = read_json_object(bytes);
    if (!read) return std::nullopt;
    return std::move(read.value());
}

/// A schema: an object, or the text of one.
Spec schema_spec(const json& value, const std::string& place) {
    if (value.is_object())
        return GrammarSpec{.kind = GrammarKind::JsonSchema, .text = value.dump()};
    if (!value.is_string()) return bad_field(place, "must be a JSON schema");
    if (!inner_object(value)) return bad_field(place, "must be a JSON schema, also as a string");
    return GrammarSpec{.kind = GrammarKind::JsonSchema, .text = value.get<std::string>()};
}

/// "a" | "b" in EBNF.
Spec choice_spec(const json& values, const std::string& place) {
    if (!values.is_array() || values.empty() || values.size() > kGrammarChoicesMax)
        return bad_field(place,
                         fmt::format("must be a list of 1 to {} strings", kGrammarChoicesMax));
    std::string rule = "root ::= ";
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!values[i].is_string())
            return bad_field(fmt::format("{}[{}]", place, i), "must be a string");
        // The escapes of JSON's strings are among those of EBNF's.
        rule += (i > 0 ? " | " : "") + values[i].dump();
    }
    return GrammarSpec{.kind = GrammarKind::Ebnf, .text = std::move(rule)};
}

Spec tag_spec(const json& value, const std::string& place) {
    json tag = value;
    if (value.is_string()) tag = inner_object(value).value_or(json{});
    if (!tag.is_object()) return bad_field(place, "must be a structural tag");
    tag["type"] = "structural_tag";
    return GrammarSpec{.kind = GrammarKind::StructuralTag, .text = tag.dump()};
}

Spec format_spec(const json& format, const std::string& place) {
    if (!format.is_object()) return bad_field(place, "must be an object");
    const json type = format.value("type", json{});
    const auto schema = format.find("schema");
    if (type == "text") return GrammarSpec{};
    if (type == "json_object" && schema == format.end())
        return GrammarSpec{.kind = GrammarKind::Json};
    if (type == "structural_tag") return tag_spec(format, place);
    if (type != "json_object" && type != "json_schema")
        return bad_field(place + ".type",
                         "must be text, json_object, json_schema or structural_tag");
    const auto inner = format.find("json_schema");
    if (inner == format.end() || !inner->is_object()) {
        if (schema != format.end()) return schema_spec(*schema, place + ".schema");
        return bad_field(place + ".json_schema", "must be an object with a schema");
    }
    const auto nested = inner->find("schema");
    if (nested == inner->end() || nested->is_null()) return GrammarSpec{.kind = GrammarKind::Json};
    return schema_spec(*nested, place + ".json_schema.schema");
}

Spec structured_spec(const json& outputs, const std::string& place) {
    if (!outputs.is_object()) return bad_field(place, "must be an object");
    Spec made = GrammarSpec{};
    int given = 0;
    for (const auto& [name, value] : outputs.items()) {
        const std::string inner = place + "." + name;
        if (value.is_null() || value == false) continue;
        if (name == "json") {
            made = schema_spec(value, inner);
        } else if (name == "regex") {
            made = text_spec(GrammarKind::Regex, value, inner);
        } else if (name == "grammar") {
            made = text_spec(GrammarKind::Ebnf, value, inner);
        } else if (name == "choice") {
            made = choice_spec(value, inner);
        } else if (name == "structural_tag") {
            made = tag_spec(value, inner);
        } else if (name == "json_object") {
            made = GrammarSpec{.kind = GrammarKind::Json};
        } else {
            continue;  // how blanks are bounded is not for the client to say
        }
        if (!made) return made;
        ++given;
    }
    if (given > 1) return bad_field(place, "must have one form alone");
    return made;
}

}  // namespace

ApiResult<GrammarRequest> grammar_request(const json& body) {
    const Fields fields{body};
    for (const auto& [name, form] : kOldNames) {
        const json* old = fields.find(name);
        if (old != nullptr && !old->empty())
            return bad_field(name,
                             fmt::format("is \"structured_outputs\": {{\"{}\": ...}} now", form));
    }
    GrammarRequest made;
    const auto read = [&](const char* name, auto&& spec_of) -> std::optional<ApiError> {
        const json* value = fields.find(name);
        if (value == nullptr || value->empty()) return {};
        Spec spec = spec_of(*value, name);
        if (!spec) return spec.error();
        if (!spec.value().any()) return {};
        if (made.spec.any()) return bad_field(name, "cannot be combined with " + made.field);
        if (spec.value().text.size() > kGrammarBytesMax)
            return bad_field(name, fmt::format("has more than {} bytes", kGrammarBytesMax));
        made = {.spec = std::move(spec.value()), .field = name};
        return {};
    };
    const auto ebnf = [](const json& value, const std::string& place) {
        // llama.cpp takes an empty grammar for none.
        return value == "" ? Spec{GrammarSpec{}} : text_spec(GrammarKind::Ebnf, value, place);
    };
    if (const auto error = read("response_format", format_spec)) return *error;
    if (const auto error = read("json_schema", schema_spec)) return *error;
    if (const auto error = read("grammar", ebnf)) return *error;
    if (const auto error = read("structured_outputs", structured_spec)) return *error;
    return made;
}

}  // namespace paceline::serve

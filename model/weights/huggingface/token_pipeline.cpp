#include "model/weights/huggingface/token_pipeline.hpp"

#include <array>
#include <limits>
#include <string_view>

#include <nlohmann/json.hpp>

#include "model/weights/huggingface/json_keys.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

const json kNull = nullptr;

/// The member, or null; of what is no object null.
const json& member(const json& object, const char* key) {
    if (!object.is_object()) return kNull;
    const auto found = object.find(key);
    return found == object.end() ? kNull : *found;
}

std::string type_of(const json& part) {
    const json& type = member(part, "type");
    return type.is_string() ? type.get<std::string>() : "";
}

bool is_true(const json& value) {
    return value.is_boolean() && value.get<bool>();
}

/// The parts of a Sequence, whose list is called `list`; else the part alone. Null: none.
std::vector<const json*> parts_of(const json& part, const char* list) {
    std::vector<const json*> parts;
    if (part.is_null()) return parts;
    const json& inner = member(part, list);
    if (type_of(part) != "Sequence" || !inner.is_array()) return {&part};
    for (const json& one : inner) parts.push_back(&one);
    return parts;
}

std::string refused(const char* what, const json& part) {
    const json& type = member(part, "type");
    return std::string{"tokenizer.json: "} + what + " " +
           (type.is_string() ? json_text_of(type) : json_text_of(part)) + " is not supported";
}

void read_normalizer(const json& root, TokenPipeline& out) {
    for (const json* part : parts_of(member(root, "normalizer"), "normalizers")) {
        if (type_of(*part) != "NFC") {
            out.refusal = refused("the normalizer", *part);
            return;
        }
        out.normal_form_c = true;
    }
}

struct KnownPattern {
    std::string_view regex;
    const char* pre;
};
constexpr std::array kPatterns = {
    KnownPattern{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                 "gpt-2"},
    KnownPattern{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                 R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                 "llama-bpe"},
    KnownPattern{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                 R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                 "qwen2"}};

/// The name of a Split's regular expression; empty: not known.
std::string pre_of_split(const json& split) {
    const json& regex = member(member(split, "pattern"), "Regex");
    const json& behavior = member(split, "behavior");
    const bool inverted = is_true(member(split, "invert"));
    // What matches stays a piece of its own in both forms.
    const bool pieces =
        (behavior == "Isolated" && !inverted) || (behavior == "Removed" && inverted);
    if (!pieces || !regex.is_string()) return {};
    for (const KnownPattern& known : kPatterns) {
        if (regex.get_ref<const std::string&>() == known.regex) return known.pre;
    }
    return {};
}

/// ByteLevel, which must leave the text's beginning alone. `use_regex` is true where it is absent.
bool is_byte_level(const json& part, bool with_regex) {
    const json& regex = member(part, "use_regex");
    const bool uses = regex.is_null() || is_true(regex);
    return type_of(part) == "ByteLevel" && uses == with_regex &&
           !is_true(member(part, "add_prefix_space"));
}

void read_pre_tokenizer(const json& root, TokenPipeline& out) {
    const std::vector<const json*> parts = parts_of(member(root, "pre_tokenizer"), "pretokenizers");
    if (parts.size() == 1 && is_byte_level(*parts[0], true)) {
        out.pre = "gpt-2";
    } else if (parts.size() == 2 && type_of(*parts[0]) == "Digits" &&
               is_true(member(*parts[0], "individual_digits")) && is_byte_level(*parts[1], true)) {
        out.pre = "smollm";
    } else if (parts.size() == 2 && type_of(*parts[0]) == "Split" &&
               is_byte_level(*parts[1], false)) {
        out.pre = pre_of_split(*parts[0]);
    }
    if (!out.pre.empty()) return;
    std::string types;
    for (const json* part : parts) {
        types += (types.empty() ? "" : ", ") + type_of(*part);
        const json& regex = member(member(*part, "pattern"), "Regex");
        if (regex.is_string()) types += " " + json_text_of(regex);
    }
    out.refusal = "tokenizer.json: the pre_tokenizer " + paceline::quoted(types) +
                  " is not supported; those of gpt2, smollm, llama3 and qwen2 are";
}

/// The ids of a special token that a template names.
bool append_ids(const json& tokens, const json& name, std::vector<TokenId>& out) {
    if (!name.is_string()) return false;
    const json& ids = member(member(tokens, name.get_ref<const std::string&>().c_str()), "ids");
    if (!ids.is_array()) return false;
    for (const json& id : ids) {
        if (!id.is_number_unsigned() ||
            id.get<std::uint64_t>() > std::numeric_limits<TokenId>::max())
            return false;
        out.push_back(id.get<TokenId>());
    }
    return true;
}

/// `single` of a TemplateProcessing: special tokens around the text.
bool read_template(const json& part, TokenPipeline& out) {
    const json& single = member(part, "single");
    if (!single.is_array()) return false;
    int texts = 0;
    for (const json& piece : single) {
        const json& special = member(piece, "SpecialToken");
        if (special.is_null()) {
            ++texts;
        } else if (texts > 0) {
            out.suffix = true;
        } else if (!append_ids(member(part, "special_tokens"), member(special, "id"), out.prefix)) {
            return false;
        }
    }
    return texts == 1;
}

void read_post_processor(const json& root, TokenPipeline& out) {
    out.has_post_processor = !member(root, "post_processor").is_null();
    for (const json* part : parts_of(member(root, "post_processor"), "processors")) {
        const std::string type = type_of(*part);
        if (type == "ByteLevel") continue;  // only moves offsets, which nothing here asks for
        if (type != "TemplateProcessing" || !read_template(*part, out)) {
            out.refusal = refused("the post_processor", *part);
            return;
        }
    }
    if (out.prefix.size() > 1)
        out.refusal =
            "tokenizer.json: a post_processor with several tokens in front of a text is not "
            "supported";
}

}  // namespace

TokenPipeline recognise_pipeline(const json& tokenizer) {
    TokenPipeline out;
    read_normalizer(tokenizer, out);
    if (out.refusal.empty()) read_pre_tokenizer(tokenizer, out);
    if (out.refusal.empty()) read_post_processor(tokenizer, out);
    const json& decoder = member(tokenizer, "decoder");
    if (out.refusal.empty() && !decoder.is_null() && type_of(decoder) != "ByteLevel")
        out.refusal = refused("the decoder", decoder);
    return out;
}

}  // namespace paceline::huggingface

#include "model/weights/huggingface/token_pipeline.hpp"

#include <array>
#include <fmt/core.h>
#include <limits>
#include <string_view>

#include <nlohmann/json.hpp>

#include "model/tokenizer/deepseek_pattern.hpp"
#include "model/weights/huggingface/json_keys.hpp"
#include "model/weights/huggingface/pipeline_parts.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

void read_normalizer(const json& root, TokenPipeline& out) {
    for (const json* part : parts_of(member(root, "normalizer"), "normalizers")) {
        if (type_of(*part) != "NFC") {
            out.refusal = refused_part("normalizer", *part);
            return;
        }
        out.normal_form_c = true;
    }
}

const json& regex_in(const json& split) {
    return member(member(split, "pattern"), "Regex");
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
                 "qwen2"},
    KnownPattern{R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                 R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                 R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                 "tekken"}};

/// The regular expression of a Split whose matches stay pieces of their own; empty: it is no such.
std::string regex_of_split(const json& split) {
    const json& behavior = member(split, "behavior");
    const bool inverted = is_true(member(split, "invert"));
    if (type_of(split) != "Split") return {};
    if (behavior == "Isolated" && !inverted) return text_or_empty(regex_in(split));
    return {};
}

/// The name of a Split's regular expression; empty: not known.
std::string pre_of_split(const json& split) {
    const json& behavior = member(split, "behavior");
    const bool inverted = is_true(member(split, "invert"));
    // What matches stays a piece of its own in both forms: these expressions leave nothing out.
    const bool pieces =
        (behavior == "Isolated" && !inverted) || (behavior == "Removed" && inverted);
    if (!pieces) return {};
    const std::string regex = text_or_empty(regex_in(split));
    for (const KnownPattern& known : kPatterns) {
        if (regex == known.regex) return known.pre;
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

bool isolates_digits(const json& part) {
    return type_of(part) == "Digits" && is_true(member(part, "individual_digits"));
}

/// DeepSeek's: line breaks, words, punctuation and ideographs, each a Split; then digits.
std::string pre_of_splits(const std::vector<const json*>& parts) {
    if (parts.size() < 6 || !is_byte_level(*parts.back(), false) ||
        !isolates_digits(*parts[parts.size() - 2]))
        return {};
    std::vector<std::string> regexes;
    for (std::size_t i = 0; i + 2 < parts.size(); ++i) regexes.push_back(regex_of_split(*parts[i]));
    if (regexes[0] == R"([\r\n])") regexes[0] = "[\r\n]";  // written either way
    const std::string ideographs = fmt::format("[{}]+", deepseek::kIdeographs);
    const std::vector<std::string> coder = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", ideographs};
    const std::vector<std::string> llm = {"[\r\n]", fmt::format(R"(\s?[{}]+)", deepseek::kLetters),
                                          fmt::format(R"(\s?[{}]+)", deepseek::kPunctuation),
                                          R"(\s+$)", ideographs};
    if (regexes == coder) return "deepseek-coder";
    return regexes == llm ? "deepseek-llm" : "";
}

void read_pre_tokenizer(const json& root, TokenPipeline& out) {
    const std::vector<const json*> parts = parts_of(member(root, "pre_tokenizer"), "pretokenizers");
    if (parts.size() == 1 && is_byte_level(*parts[0], true)) {
        out.pre = "gpt-2";
    } else if (parts.size() == 2 && isolates_digits(*parts[0]) && is_byte_level(*parts[1], true)) {
        out.pre = "smollm";
    } else if (parts.size() == 2 && type_of(*parts[0]) == "Split" &&
               is_byte_level(*parts[1], false)) {
        out.pre = pre_of_split(*parts[0]);
    } else {
        out.pre = pre_of_splits(parts);
    }
    if (!out.pre.empty()) return;
    std::string types;
    for (const json* part : parts) {
        types += (types.empty() ? "" : ", ") + type_of(*part);
        const json& regex = regex_in(*part);
        if (regex.is_string()) types += " " + json_text_of(regex);
    }
    out.refusal = "tokenizer.json: the pre_tokenizer " + paceline::quoted_text(types) +
                  " is not supported; those of gpt2, smollm, llama3, qwen2, tekken, deepseek-coder "
                  "and deepseek-llm are";
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
            out.refusal = refused_part("post_processor", *part);
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
    for (const json* part : parts_of(member(tokenizer, "pre_tokenizer"), "pretokenizers"))
        out.byte_level = out.byte_level || type_of(*part) == "ByteLevel";
    if (out.byte_level) {
        read_normalizer(tokenizer, out);
        if (out.refusal.empty()) read_pre_tokenizer(tokenizer, out);
        const json& decoder = member(tokenizer, "decoder");
        if (out.refusal.empty() && !decoder.is_null() && type_of(decoder) != "ByteLevel")
            out.refusal = refused_part("decoder", decoder);
    } else {
        out.pieces = recognise_pieces(tokenizer);
        out.refusal = out.pieces.refusal;
        out.pre = out.pieces.rules.metaspace ? "metaspace" : "none";
    }
    if (out.refusal.empty()) read_post_processor(tokenizer, out);
    return out;
}

}  // namespace paceline::huggingface

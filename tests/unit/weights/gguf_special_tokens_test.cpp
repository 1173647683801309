// Special tokens of a GGUF file that are typed as text, have no text, or are none of the
// vocabulary.
#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr std::size_t kVocabulary = 288;
constexpr std::int32_t kNormal = 1, kControl = 3, kUser = 4, kUnused = 5;

/// A model whose token 260 is `text` of the type `type`; all others are ordinary.
GgufBuilder with_token(const std::string& text, std::int32_t type) {
    GgufBuilder builder = tiny_model();
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < kVocabulary; ++i) tokens.push_back("t" + std::to_string(i));
    tokens[260] = text;
    std::vector<std::int32_t> types(kVocabulary, kNormal);
    types[260] = type;
    builder.set_texts(kTokens, tokens);
    builder.set_ints(kTypes, types);
    builder.remove_key("tokenizer.ggml.bos_token_id");
    builder.remove_key("tokenizer.ggml.eos_token_id");
    return builder;
}

ModelParts read(const GgufBuilder& builder) {
    Result<ModelParts> parts = read_bytes(builder.bytes());
    if (!parts) FAIL(parts.error().what);
    return std::move(parts).value();
}

bool remarks_have(const ModelParts& parts, std::string_view words) {
    return std::any_of(parts.remarks.begin(), parts.remarks.end(), [&](const std::string& remark) {
        return remark.find(words) != std::string::npos;
    });
}

TEST_CASE("a token with a name of begin or end is a control token whatever its type is") {
    for (const char* text : {"<|im_end|>", "<|end|>", "<|eot_id|>", "</s>", "<|im_start|>"}) {
        for (const std::int32_t type : {kNormal, kUser, kUnused}) {
            const ModelParts parts = read(with_token(text, type));
            CHECK(parts.tokenizer.kinds[260] == TokenKind::Control);
            CHECK(remarks_have(parts, "it is a control token: 260 \"" + std::string{text} + "\""));
        }
        CHECK_FALSE(remarks_have(read(with_token(text, kControl)), "control token"));
    }
    const ModelParts other = read(with_token("<tool_call>", kUser));
    CHECK(other.tokenizer.kinds[260] == TokenKind::User);
    CHECK_FALSE(remarks_have(other, "control token"));
}

TEST_CASE("a token that a key names as begin or end is a control token whatever its type is") {
    for (const char* key : {"bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id"}) {
        for (const std::int32_t type : {kNormal, kUser, kUnused}) {
            GgufBuilder builder = with_token("<|over|>", type);
            builder.set_u32(std::string{"tokenizer.ggml."} + key, 260);
            const ModelParts parts = read(builder);
            CHECK(parts.tokenizer.kinds[260] == TokenKind::Control);
            CHECK(remarks_have(parts, "260 \"<|over|>\""));
        }
    }
    for (const char* key : {"unknown_token_id", "padding_token_id"}) {
        GgufBuilder builder = with_token("<|over|>", kUser);
        builder.set_u32(std::string{"tokenizer.ggml."} + key, 260);
        CHECK(read(builder).tokenizer.kinds[260] == TokenKind::User);
    }
}

TEST_CASE("a line break that ends an answer, and markup that merges make, stay text") {
    GgufBuilder builder = with_token("\u010A", kNormal);
    builder.set_u32("tokenizer.ggml.eos_token_id", 260);
    CHECK(read(builder).tokenizer.kinds[260] == TokenKind::Normal);
    builder = with_token("</s>", kNormal);
    builder.set_texts("tokenizer.ggml.merges", {"< /", "</s >"});
    CHECK(read(builder).tokenizer.kinds[260] == TokenKind::Normal);
    builder.set_texts("tokenizer.ggml.merges", {"< /"});
    CHECK(read(builder).tokenizer.kinds[260] == TokenKind::Control);
}

TEST_CASE("without token types only what names or keys say is a control token") {
    GgufBuilder builder = with_token("<|im_end|>", kNormal);
    builder.remove_key(kTypes);
    const ModelParts parts = read(builder);
    REQUIRE(parts.tokenizer.kinds.size() == kVocabulary);
    CHECK(parts.tokenizer.kinds[260] == TokenKind::Control);
    CHECK(parts.tokenizer.kinds[261] == TokenKind::Normal);
}

TEST_CASE("an end of CodeLlama typed as the user's keeps its text in a SentencePiece vocabulary") {
    GgufBuilder builder = with_token("\u2581<EOT>", kUser);
    builder.set_text("tokenizer.ggml.model", "llama");
    builder.set_floats("tokenizer.ggml.scores", std::vector<float>(kVocabulary, 0.0F));
    const ModelParts parts = read(builder);
    CHECK(parts.tokenizer.kinds[260] == TokenKind::Control);
    CHECK(parts.tokenizer.tokens[260] == "\u2581<EOT>");
}

TEST_CASE("an id that no token has is ignored with a remark, each by its key") {
    const std::pair<const char*, std::optional<TokenId> TokenizerData::*> named[] = {
        {"bos", &TokenizerData::bos},         {"eos", &TokenizerData::eos},
        {"eot", &TokenizerData::eot},         {"eom", &TokenizerData::eom},
        {"unknown", &TokenizerData::unknown}, {"padding", &TokenizerData::padding}};
    for (const auto& [name, place] : named) {
        const std::string key = "tokenizer.ggml." + std::string{name} + "_token_id";
        CAPTURE(key);
        GgufBuilder builder = tiny_model();
        const auto check = [&](const std::string& shown) {
            const ModelParts parts = read(builder);
            CHECK_FALSE(parts.tokenizer.*place);
            CHECK(remarks_have(parts, key + " is " + shown + ", which is none of the 288 tokens"));
        };
        builder.set_u32(key, 288);
        check("288");
        builder.set_u32(key, 0xFFFFFFFF);
        check("4294967295");
        builder.set_i32(key, -1);
        check("-1");
        builder.set_u64(key, ~std::uint64_t{0});
        check("9223372036854775807");
    }
}

TEST_CASE("an id that no token has means none in a SentencePiece vocabulary, not the usual one") {
    GgufBuilder builder = with_token("x", kNormal);
    builder.set_text("tokenizer.ggml.model", "llama");
    builder.set_floats("tokenizer.ggml.scores", std::vector<float>(kVocabulary, 0.0F));
    builder.set_u32("tokenizer.ggml.eos_token_id", 0xFFFFFFFF);
    CHECK_FALSE(read(builder).tokenizer.eos);
    builder.set_u32("tokenizer.ggml.bos_token_id", 0xFFFFFFFF);
    builder.remove_key("tokenizer.ggml.add_bos_token");
    CHECK_FALSE(read_bytes(builder.bytes()).ok());  // texts of this family begin with it
    builder.set_bool("tokenizer.ggml.add_bos_token", false);
    CHECK_FALSE(read(builder).tokenizer.bos);
    builder.remove_key("tokenizer.ggml.eos_token_id");
    CHECK(read(builder).tokenizer.eos == TokenId{2});
}

TEST_CASE("an array without elements is absent, whatever type it claims") {
    GgufBuilder builder = tiny_model();
    for (const char* key : {"tokenizer.ggml.merges", "tokenizer.chat_templates"}) {
        builder.set_ints(key, {});
        CHECK(read_bytes(builder.bytes()).ok());
    }
    builder.set_texts(kTypes, {});
    CHECK(read(builder).tokenizer.kinds.size() == kVocabulary);
}

TEST_CASE("a file whose special token has no text is read") {
    const ModelParts parts = read(with_token("", kUser));
    CHECK(parts.tokenizer.tokens[260].empty());
}

}  // namespace
}  // namespace paceline

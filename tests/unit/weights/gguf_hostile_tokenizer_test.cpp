// Tokenizer data that disagree with the weights or with themselves.
#include "model/weights/gguf/gguf_model_keys.hpp"
#include "model/weights/gguf/gguf_tokenizer.hpp"
#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

void expect_bad(const GgufBuilder& builder, std::initializer_list<std::string_view> words) {
    expect_refused(builder.bytes(), Errc::BadFile, words);
}

std::vector<std::string> tokens(std::size_t count) {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < count; ++i) texts.push_back("t" + std::to_string(i));
    return texts;
}

TEST_CASE("a vocabulary of another size than the embedding is refused") {
    for (const std::size_t count : {std::size_t{0}, std::size_t{287}, std::size_t{289}}) {
        GgufBuilder builder = tiny_model();
        builder.set_texts("tokenizer.ggml.tokens", tokens(count));
        expect_bad(builder, {"tokenizer.ggml.tokens", std::to_string(count), "288"});
    }
}

TEST_CASE("token kinds must be as many as tokens, each of a known kind") {
    GgufBuilder builder = tiny_model();
    builder.set_ints("tokenizer.ggml.token_type", std::vector<std::int32_t>(287, 1));
    expect_bad(builder, {"tokenizer.ggml.token_type", "287", "288"});
    for (const std::int32_t kind : {0, 7, -1}) {
        std::vector<std::int32_t> kinds(288, 1);
        kinds[100] = kind;
        builder.set_ints("tokenizer.ggml.token_type", kinds);
        expect_bad(builder, {"tokenizer.ggml.token_type", "token 100", std::to_string(kind)});
    }
}

TEST_CASE(
    "a tokenizer of another model than gpt2 and llama is refused by name, the weights are not") {
    for (const char* name : {"unigram", "t5", "none", ""}) {
        GgufBuilder builder = tiny_model();
        builder.set_text("tokenizer.ggml.model", name);
        const Result<ModelParts> parts = read_bytes(builder.bytes());
        REQUIRE(parts.ok());
        CHECK(parts.value().tokenizer.refusal ==
              "tokenizer model \"" + std::string{name} +
                  "\" (tokenizer.ggml.model) is not supported; supported: gpt2, llama, and t5 as "
                  "paceline convert writes "
                  "it");
    }
    CHECK(read_bytes(tiny_model().bytes()).value().tokenizer.refusal.empty());
}

TEST_CASE("a BOS outside the vocabulary is refused where texts begin with it") {
    for (const std::int32_t id : {288, -1}) {
        GgufBuilder builder = tiny_model();
        builder.set_i32("tokenizer.ggml.bos_token_id", id);
        builder.set_bool("tokenizer.ggml.add_bos_token", true);
        expect_bad(builder, {"tokenizer.ggml.bos_token_id is " + std::to_string(id), "288",
                             "tokenizer.ggml.add_bos_token"});
    }
}

TEST_CASE("a special id that is no number is refused by its key") {
    GgufBuilder builder = tiny_model();
    builder.set_text("tokenizer.ggml.padding_token_id", "none");
    expect_bad(builder, {"tokenizer.ggml.padding_token_id", "string"});
}

TEST_CASE("ids of Paceline's own keys outside the vocabulary are refused, each by its key") {
    for (const char* key : {kEndTokensKey, kStripLeftKey, kStripRightKey, kLateTokensKey}) {
        for (const std::int32_t id : {288, -1}) {
            GgufBuilder builder = tiny_model();
            builder.set_ints(key, {0, id});
            expect_bad(builder, {key, std::to_string(id), "288"});
        }
        GgufBuilder builder = tiny_model();
        builder.set_text(key, "no list");
        expect_bad(builder, {key});
    }
}

TEST_CASE("a token longer than 64 KiB is refused (CVE-2025-49847)") {
    GgufBuilder builder = tiny_model();
    std::vector<std::string> texts = tokens(288);
    texts[7] = std::string(kTokenBytesMax + 1, 'x');
    builder.set_texts("tokenizer.ggml.tokens", texts);
    expect_bad(builder, {"token 7", "65537"});
    texts[7].pop_back();
    builder.set_texts("tokenizer.ggml.tokens", texts);
    CHECK(read_bytes(builder.bytes()).ok());
}

TEST_CASE("tokens, kinds and merges of another type are refused") {
    for (const char* name : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
        GgufBuilder builder = tiny_model();
        builder.set_ints(name, std::vector<std::int32_t>(288, 1));
        expect_bad(builder, {name, "array of strings", "array of 288 int32"});
        builder.set_text(name, "x");
        expect_bad(builder, {name, "array of strings"});
    }
    GgufBuilder builder = tiny_model();
    builder.set_texts("tokenizer.ggml.token_type", tokens(288));
    expect_bad(builder, {"tokenizer.ggml.token_type", "array of integers"});
    builder = tiny_model();
    builder.set_text("tokenizer.ggml.model", "llama");
    builder.set_ints("tokenizer.ggml.scores", std::vector<std::int32_t>(288, 1));
    expect_bad(builder, {"tokenizer.ggml.scores", "an array of float32", "array of 288 int32"});
    builder = tiny_model();
    builder.set_u32("tokenizer.chat_template", 5);
    expect_bad(builder, {"tokenizer.chat_template", "string"});
}

TEST_CASE("a chat template is text and is never run; a mebibyte is its limit") {
    GgufBuilder builder = tiny_model();
    builder.set_text("tokenizer.chat_template", std::string((1U << 20U) + 1, ' '));
    expect_bad(builder, {"tokenizer.chat_template", "1048577"});
    builder.set_text("tokenizer.chat_template", "{{ ''.__class__.__mro__ }}");
    const Result<ModelParts> parts = read_bytes(builder.bytes());
    REQUIRE(parts.ok());
    CHECK(parts.value().tokenizer.chat_template == "{{ ''.__class__.__mro__ }}");
}

}  // namespace
}  // namespace paceline

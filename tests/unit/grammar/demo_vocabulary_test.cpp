// With the demo model's own vocabulary, read from the GGUF file that PACELINE_DEMO_MODEL names.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include <doctest/doctest.h>

#include "model/grammar/grammar.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {
namespace {

constexpr const char* kSchema =
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},
        "tags":{"type":"array","items":{"enum":["red","green"]}}},
        "required":["name","age","tags"]})";

// Counted repetitions: 4.3 MB in the library's own form, with 49,152 tokens.
constexpr const char* kCounted =
    R"({"type":"object","properties":{"a":{"type":"string","maxLength":30},
        "tags":{"type":"array","items":{"type":"string","maxLength":20}}},
        "required":["a","tags"]})";

struct Demo {
    ModelFile file;
    Tokenizer tokenizer;
    GrammarVocabulary vocabulary;
    std::unique_ptr<GrammarLoader> loader;

    [[nodiscard]] CompiledGrammarPtr compiled(const char* schema) const {
        Result<CompiledGrammarPtr> made =
            make_grammar_compiler(vocabulary)->compile({GrammarKind::JsonSchema, schema});
        REQUIRE_MESSAGE(made.ok(), made.error().what);
        return std::move(made).value();
    }
    /// Whether the text is of the language, and may end; the mask and the matcher agree on the way.
    [[nodiscard]] bool accepts(const CompiledGrammarPtr& grammar, const char* text) const {
        const auto matcher = loader->match(grammar, tokenizer.end_tokens());
        REQUIRE(matcher.ok());
        TokenMask mask;
        for (const TokenId token : tokenizer.encode(text, SpecialTokens::AsText)) {
            matcher.value()->fill(mask);
            const bool taken = matcher.value()->accept(token);
            CHECK(taken == mask.allows(token));
            if (!taken) return false;
        }
        matcher.value()->fill(mask);
        check_control_tokens(mask);
        return matcher.value()->accept(tokenizer.end_tokens().front());
    }
    void check_control_tokens(const TokenMask& mask) const {
        const std::vector<TokenId>& ends = tokenizer.end_tokens();
        for (std::size_t token = 0; token < vocabulary.vocab_size; ++token) {
            const bool control = token < vocabulary.control.size() && vocabulary.control[token];
            const bool end =
                std::find(ends.begin(), ends.end(), static_cast<TokenId>(token)) != ends.end();
            if (control && !end) CHECK_FALSE(mask.allows(static_cast<TokenId>(token)));
        }
    }
};

std::optional<Demo> open_demo() {
    const char* path = std::getenv("PACELINE_DEMO_MODEL");
    if (path == nullptr || std::string_view{path} == "none") {
        MESSAGE("skipped: PACELINE_DEMO_MODEL names no model");
        return std::nullopt;
    }
    Result<ModelFile> file = ModelFile::open(path);
    REQUIRE(file.ok());
    Result<Tokenizer> tokenizer = Tokenizer::make(file.value().tokenizer());
    REQUIRE(tokenizer.ok());
    const auto vocab = static_cast<std::size_t>(file.value().config().vocab_size);
    GrammarVocabulary vocabulary = grammar_vocabulary(tokenizer.value(), vocab);
    auto loader = make_grammar_loader(vocabulary);
    return Demo{std::move(file).value(), std::move(tokenizer).value(), std::move(vocabulary),
                std::move(loader)};
}

TEST_CASE("what the demo's tokenizer makes of a valid text is accepted, and of another is not") {
    const std::optional<Demo> demo = open_demo();
    if (!demo) return;
    const CompiledGrammarPtr grammar = demo->compiled(kSchema);
    const auto accepts = [&](const char* text) { return demo->accepts(grammar, text); };
    CHECK(accepts(R"({"name": "Jörg \"J\" Müller", "age": 41, "tags": ["red", "green"]})"));
    CHECK(accepts(R"({"name": "", "age": -1, "tags": []})"));
    CHECK_FALSE(accepts(R"({"name": "a", "age": 41})"));
    CHECK_FALSE(accepts(R"({"name": "a", "age": 4.5, "tags": []})"));
    CHECK_FALSE(accepts(R"({"name": "a", "age": 4, "tags": ["blue"]})"));
    CHECK_FALSE(accepts(R"({"name": "a", "age": 4, "tags": []} )"));
}

TEST_CASE("counted repetitions over the demo's vocabulary fit in the limit, and are counted") {
    const std::optional<Demo> demo = open_demo();
    if (!demo) return;
    const CompiledGrammarPtr grammar = demo->compiled(kCounted);
    CHECK(grammar->bytes.size() < kCompiledGrammarMax / 8);
    const auto accepts = [&](const char* text) { return demo->accepts(grammar, text); };
    CHECK(accepts(R"({"a": "123456789 123456789 123456789 ", "tags": ["Donaudampfschiffe", ""]})"));
    CHECK_FALSE(accepts(R"({"a": "123456789 123456789 123456789 1", "tags": []})"));
    CHECK_FALSE(accepts(R"({"a": "", "tags": ["123456789 123456789 1"]})"));
}

}  // namespace
}  // namespace paceline

// With the demo model's own vocabulary, read from the GGUF file that PACELINE_DEMO_MODEL names.
#include <cstdlib>

#include <doctest/doctest.h>

#include "model/grammar/grammar.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {
namespace {

constexpr const char* kSchema =
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},
        "tags":{"type":"array","items":{"enum":["red","green"]}}},
        "required":["name","age","tags"]})";

TEST_CASE("what the demo's tokenizer makes of a valid text is accepted, and of another is not") {
    const char* path = std::getenv("PACELINE_DEMO_MODEL");
    if (path == nullptr || std::string_view{path} == "none") {
        MESSAGE("skipped: PACELINE_DEMO_MODEL names no model");
        return;
    }
    const Result<ModelFile> file = ModelFile::open(path);
    REQUIRE(file.ok());
    const Result<Tokenizer> tokenizer = Tokenizer::make(file.value().tokenizer());
    REQUIRE(tokenizer.ok());
    const auto vocab = static_cast<std::size_t>(file.value().config().vocab_size);
    const GrammarVocabulary vocabulary = grammar_vocabulary(tokenizer.value(), vocab);
    const auto compiled =
        make_grammar_compiler(vocabulary)->compile({GrammarKind::JsonSchema, kSchema});
    REQUIRE(compiled.ok());
    const auto loader = make_grammar_loader(vocabulary);
    const std::vector<TokenId>& ends = tokenizer.value().end_tokens();
    const auto accepts = [&](const char* text) {
        const auto matcher = loader->match(compiled.value(), ends);
        REQUIRE(matcher.ok());
        TokenMask mask;
        for (const TokenId token : tokenizer.value().encode(text, SpecialTokens::AsText)) {
            matcher.value()->fill(mask);
            const bool taken = matcher.value()->accept(token);
            CHECK(taken == mask.allows(token));
            if (!taken) return false;
        }
        matcher.value()->fill(mask);
        for (std::size_t token = 0; token < vocab; ++token) {
            const bool control = token < vocabulary.control.size() && vocabulary.control[token];
            const bool end =
                std::find(ends.begin(), ends.end(), static_cast<TokenId>(token)) != ends.end();
            if (control && !end) CHECK_FALSE(mask.allows(static_cast<TokenId>(token)));
        }
        return matcher.value()->accept(ends.front());
    };
    CHECK(accepts(R"({"name": "Jörg \"J\" Müller", "age": 41, "tags": ["red", "green"]})"));
    CHECK(accepts(R"({"name": "", "age": -1, "tags": []})"));
    CHECK_FALSE(accepts(R"({"name": "a", "age": 41})"));
    CHECK_FALSE(accepts(R"({"name": "a", "age": 4.5, "tags": []})"));
    CHECK_FALSE(accepts(R"({"name": "a", "age": 4, "tags": ["blue"]})"));
    CHECK_FALSE(accepts(R"({"name": "a", "age": 4, "tags": []} )"));
}

}  // namespace
}  // namespace paceline

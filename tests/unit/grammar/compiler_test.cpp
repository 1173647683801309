// What is refused, and with which words.
#include <doctest/doctest.h>

#include "small_vocabulary.hpp"

namespace paceline {
namespace {

Error error_of(const GrammarSpec& spec) {
    const Result<CompiledGrammarPtr> made =
        make_grammar_compiler(small_vocabulary())->compile(spec);
    if (made) return {Errc::System, "it was compiled"};
    return made.error();
}

bool says(const Error& error, const char* word) {
    INFO(error.what);
    return error.what.find(word) != std::string::npos;
}

TEST_CASE(
    "a grammar that cannot be compiled is refused with its kind, the reason and where it is known "
    "the place") {
    struct Bad {
        GrammarSpec spec;
        const char* kind;
        const char* reason;
    };
    const std::vector<Bad> all = {
        {{GrammarKind::Regex, "a("}, "the regular expression cannot be compiled: ", "position"},
        {{GrammarKind::Ebnf, "root ::= \"a\" | other"},
         "the grammar cannot be compiled: ",
         "line 1"},
        {{GrammarKind::Ebnf, "start ::= \"a\""}, "the grammar cannot be compiled: ", "root"},
        {{GrammarKind::JsonSchema, R"({"type": "object")"},
         "the JSON schema cannot be compiled: ",
         "JSON"},
        {{GrammarKind::JsonSchema, R"({"type": "nothing"})"},
         "the JSON schema cannot be compiled: ",
         "nothing"},
        {{GrammarKind::JsonSchema, R"({"$ref": "#/$defs/none"})"},
         "the JSON schema cannot be compiled: ",
         "none"},
        {{GrammarKind::StructuralTag, "{}"},
         "the structural tag cannot be compiled: ",
         "structural"},
    };
    for (const Bad& bad : all) {
        CAPTURE(bad.spec.text);
        const Error error = error_of(bad.spec);
        CHECK(error.code == Errc::BadArgument);
        CHECK(says(error, bad.kind));
        CHECK(says(error, bad.reason));
        CHECK_FALSE(says(error, ".cc:"));
    }
}

TEST_CASE("a text that is too long is refused") {
    const Error error = error_of({GrammarKind::Regex, std::string(kGrammarTextMax + 1, 'a')});
    CHECK(error.code == Errc::BadArgument);
    CHECK(says(error, "1048577 bytes"));
}

TEST_CASE("equal grammars have equal hashes, others of kind or text do not") {
    const GrammarSpec spec{GrammarKind::Regex, "ab"};
    CHECK(hash_of(spec) == hash_of({GrammarKind::Regex, "ab"}));
    CHECK(hash_of(spec) != hash_of({GrammarKind::Ebnf, "ab"}));
    CHECK(hash_of(spec) != hash_of({GrammarKind::Regex, "abc"}));
    CHECK(hash_of(spec).size() == kGrammarHashBytes);
}

TEST_CASE("bytes that are no compiled grammar of this vocabulary are refused") {
    const auto compiled =
        make_grammar_compiler(small_vocabulary())->compile({GrammarKind::Regex, "ab"});
    REQUIRE(compiled.ok());
    GrammarVocabulary other = small_vocabulary();
    other.vocab_size += 1;
    const std::vector<TokenId> ends{kSmallEnd};
    CHECK_FALSE(make_grammar_loader(other)->match(compiled.value(), ends).ok());
    const std::string& bytes = compiled.value()->bytes;
    const std::vector<std::string> bad = {
        "",
        "{}",
        bytes.substr(0, bytes.size() / 2),
        "paceline-grammar 9\n{}",
        "paceline-grammar 4" + bytes.substr(bytes.find('\n')),
        "paceline-grammar 99999" + bytes.substr(bytes.find('\n'))};
    for (const std::string& each : bad) {
        const auto grammar = std::make_shared<const CompiledGrammar>(CompiledGrammar{"0", each});
        const auto made = make_grammar_loader(small_vocabulary())->match(grammar, ends);
        CHECK_FALSE(made.ok());
    }
}

}  // namespace
}  // namespace paceline

// How compiled grammars get to a stage: with the first Begin of each incarnation that names one.
#include "actors/decoding/grammar/grammar_store.hpp"

#include <doctest/doctest.h>

#include "actors/decoding/grammar/answer_grammar.hpp"
#include "tests/support/toy/toy_grammar.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr StageId kStage{3};

CompiledGrammar grammar_of(std::size_t number, std::size_t bytes = 100) {
    const GrammarSpec spec{GrammarKind::Regex, std::to_string(number)};
    return {hash_of(spec), "toy " + std::to_string(number) + std::string(bytes, ' ')};
}

BeginPayload begin_for(SentGrammars& sent, const CompiledGrammar& grammar) {
    BeginPayload begin;
    sent.add(kStage, grammar, begin);
    return begin;
}

}  // namespace

TEST_CASE("a grammar is sent once to each incarnation of a stage") {
    SentGrammars sent;
    CHECK_FALSE(begin_for(sent, grammar_of(1)).grammar_bytes.empty());
    CHECK(begin_for(sent, grammar_of(1)).grammar_bytes.empty());
    CHECK_FALSE(begin_for(sent, grammar_of(2)).grammar_bytes.empty());
    BeginPayload other;
    sent.add(StageId{4}, grammar_of(1), other);
    CHECK_FALSE(other.grammar_bytes.empty());
    sent.forget(kStage);
    CHECK_FALSE(begin_for(sent, grammar_of(1)).grammar_bytes.empty());
}

TEST_CASE("a stage has what it was sent, however many grammars there are, and not much more") {
    SentGrammars sent;
    GrammarStore store;
    for (std::size_t i = 0; i < 1000; ++i) {
        const std::size_t number = i * i % 97 + i / 200;
        const CompiledGrammar grammar = grammar_of(number, number % 7 == 0 ? 3U << 20 : 100);
        BeginPayload begin = begin_for(sent, grammar);
        REQUIRE(store.take(begin).ok());
        REQUIRE(begin.compiled != nullptr);
        CHECK(begin.compiled->bytes == grammar.bytes);
        CHECK(begin.compiled->hash == grammar.hash);
        CHECK(store.size() <= kGrammarsKept);
    }
}

TEST_CASE(
    "a Begin that names a grammar which was not sent is refused, one without a grammar is not") {
    GrammarStore store;
    BeginPayload begin;
    CHECK(store.take(begin).ok());
    CHECK(begin.compiled == nullptr);
    begin.grammar_hash = grammar_of(1).hash;
    const Status refused = store.take(begin);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::Protocol);
}

TEST_CASE("a matcher follows the text, whatever it followed before") {
    ToyLoader loader;
    Request request;
    request.text = {1, 2, 3};
    make_constrained(request, 7);
    // Some text of the language.
    std::vector<TokenId> text = request.text;
    const auto matcher = loader.match(request.compiled, request.end_tokens);
    TokenMask mask;
    for (int i = 0; i < 6; ++i) {
        matcher.value()->fill(mask);
        TokenId next = 0;
        while (!mask.allows(next) || next == kToyEnd) ++next;
        REQUIRE(matcher.value()->accept(next));
        text.push_back(next);
    }
    AnswerGrammar grammar{loader, request.compiled, request.end_tokens, 3};
    const auto masks_equal = [&](std::size_t length) {
        AnswerGrammar fresh{loader, request.compiled, request.end_tokens, 3};
        REQUIRE(fresh.follow(std::span{text}.first(length)).ok());
        const std::span<const std::uint32_t> words = grammar.mask().words();
        const std::span<const std::uint32_t> expected = fresh.mask().words();
        return std::equal(words.begin(), words.end(), expected.begin(), expected.end());
    };
    for (const std::size_t length : {9UL, 4UL, 3UL, 8UL, 8UL, 5UL}) {
        REQUIRE(grammar.follow(std::span{text}.first(length)).ok());
        CHECK(masks_equal(length));
        // A walk that is thrown away.
        for (TokenId token = 0, taken = 0; token < kFakeVocab && taken < 3; ++token)
            taken += grammar.accept(token) ? 1 : 0;
    }
    std::vector<TokenId> forbidden = text;
    REQUIRE(grammar.follow(text).ok());
    TokenId bad = 0;
    while (grammar.mask().allows(bad)) ++bad;
    forbidden.push_back(bad);
    CHECK_FALSE(grammar.follow(forbidden).ok());
}

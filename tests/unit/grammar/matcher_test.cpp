// A matcher over the life of an answer: ends, taking back, control tokens.
#include <doctest/doctest.h>

#include "small_vocabulary.hpp"

namespace paceline {
namespace {

std::unique_ptr<GrammarMatcher> matcher_of(const GrammarSpec& spec,
                                           const std::vector<TokenId>& end_tokens = {kSmallEnd}) {
    Result<std::unique_ptr<GrammarMatcher>> made = small_matcher(spec, end_tokens);
    if (!made) FAIL(made.error().what);
    return std::move(made).value();
}

std::vector<TokenId> allowed(GrammarMatcher& matcher) {
    TokenMask mask;
    matcher.fill(mask);
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < static_cast<TokenId>(mask.vocab()); ++token)
        if (mask.allows(token)) tokens.push_back(token);
    return tokens;
}

TEST_CASE("an end is allowed when the text is whole, and nothing after it") {
    const auto matcher = matcher_of({GrammarKind::Regex, "ab?"});
    CHECK_FALSE(matcher->accept(kSmallEnd));
    REQUIRE(matcher->accept(small_token("a")));
    CHECK(allowed(*matcher) == std::vector<TokenId>{kSmallEnd, small_token("b")});
    REQUIRE(matcher->accept(small_token("b")));
    CHECK(allowed(*matcher) == std::vector<TokenId>{kSmallEnd});
    REQUIRE(matcher->accept(kSmallEnd));
    CHECK(allowed(*matcher).empty());
    CHECK_FALSE(matcher->accept(small_token("a")));
    CHECK_FALSE(matcher->accept(kSmallEnd));
}

TEST_CASE("of a long text that is forced only the beginning is given") {
    const auto matcher = matcher_of({GrammarKind::Regex, "(ab){400}"});
    const std::string forced = matcher->forced_bytes();
    CHECK(forced.starts_with("abab"));
    CHECK(forced.size() == 256);
    CHECK(matcher->forced_tokens(8).size() <= 8);
}

TEST_CASE("tokens are taken back one by one, an end too") {
    const auto matcher = matcher_of({GrammarKind::Regex, "abcd"});
    std::vector<std::vector<TokenId>> before;
    const std::vector<TokenId> text{small_token("ab"), small_token("c"), small_token("d"),
                                    kSmallEnd};
    for (const TokenId token : text) {
        before.push_back(allowed(*matcher));
        REQUIRE(matcher->accept(token));
    }
    for (std::size_t left = text.size(); left-- > 0;) {
        matcher->roll_back(1);
        CHECK(allowed(*matcher) == before[left]);
    }
    for (const TokenId token : text) REQUIRE(matcher->accept(token));
    matcher->roll_back(text.size());
    CHECK(allowed(*matcher) == before[0]);
}

TEST_CASE("each answer has end tokens of its own, ordinary ones too") {
    const auto matcher = matcher_of({GrammarKind::Regex, "[abx]+"}, {small_token("x"), kSmallEnd});
    CHECK_FALSE(matcher->accept(small_token("x")));
    REQUIRE(matcher->accept(small_token("a")));
    TokenMask mask;
    matcher->fill(mask);
    CHECK(mask.allows(small_token("x")));
    CHECK(mask.allows(kSmallEnd));
    CHECK(mask.allows(small_token("b")));
}

TEST_CASE("an answer without end tokens has no token left after the whole text") {
    const auto matcher = matcher_of({GrammarKind::Regex, "ab"}, {});
    REQUIRE(matcher->accept(small_token("ab")));
    CHECK(allowed(*matcher).empty());
    CHECK_FALSE(matcher->accept(small_token("a")));
    matcher->roll_back(1);
    CHECK(allowed(*matcher) == std::vector<TokenId>{small_token("a"), small_token("ab")});
}

TEST_CASE("a control token is allowed only if the grammar names it") {
    const auto any = matcher_of({GrammarKind::Ebnf, "root ::= [^0]*"});
    TokenMask mask;
    any->fill(mask);
    CHECK_FALSE(mask.allows(kSmallControl));
    CHECK_FALSE(mask.allows(0));
    CHECK_FALSE(any->accept(kSmallControl));
    const auto named = matcher_of({GrammarKind::Ebnf, "root ::= \"<call>\" \"a\""});
    named->fill(mask);
    CHECK(mask.allows(kSmallControl));
    REQUIRE(named->accept(kSmallControl));
    CHECK(allowed(*named) == std::vector<TokenId>{small_token("a")});
}

TEST_CASE("a structural tag constrains from its opening on") {
    const auto matcher = matcher_of(
        {GrammarKind::StructuralTag,
         R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<call>"],"tags":[
             {"begin":"<call>","content":{"type":"regex","pattern":"12"},"end":"."}]}})"});
    TokenMask mask;
    matcher->fill(mask);
    CHECK(mask.allows(small_token("a")));
    CHECK(mask.allows(kSmallEnd));
    REQUIRE(matcher->accept(small_token("a")));
    REQUIRE(matcher->accept(kSmallControl));
    CHECK(allowed(*matcher) == std::vector<TokenId>{small_token("1"), small_token("12")});
    REQUIRE(matcher->accept(small_token("12")));
    CHECK(allowed(*matcher) == std::vector<TokenId>{small_token(".")});
    REQUIRE(matcher->accept(small_token(".")));
    matcher->fill(mask);
    CHECK(mask.allows(small_token("b")));
}

TEST_CASE("white space of a JSON schema is that of one layout") {
    const auto matcher = matcher_of({GrammarKind::Json, ""});
    CHECK(allowed(*matcher) == std::vector<TokenId>{small_token("{"), small_token("{\"")});
    REQUIRE(matcher->accept(small_token("{\"")));
    REQUIRE(matcher->accept(small_token("a")));
    REQUIRE(matcher->accept(small_token("\":")));
    CHECK(allowed(*matcher) == std::vector<TokenId>{small_token(" ")});
}

}  // namespace
}  // namespace paceline

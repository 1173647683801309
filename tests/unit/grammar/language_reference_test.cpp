// The masks against a plain reference: languages that are finite or that a simple function decides.
// A token is allowed if some text of the language continues what was accepted and the token; an end
// is allowed exactly after a whole text.
#include <functional>
#include <set>

#include <doctest/doctest.h>

#include "small_vocabulary.hpp"

namespace paceline {
namespace {

struct Language {
    const char* name;
    GrammarSpec spec;
    std::vector<std::string> texts;  // all of it
};

/// Every text over `letters` of at most `length` bytes that `belongs`.
std::vector<std::string> texts_of(const std::string& letters,
                                  std::size_t length,
                                  const std::function<bool(const std::string&)>& belongs) {
    std::vector<std::string> found;
    std::vector<std::string> all{""};
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (belongs(all[i])) found.push_back(all[i]);
        if (all[i].size() == length) continue;
        for (const char letter : letters) all.push_back(all[i] + letter);
    }
    return found;
}

std::vector<Language> languages() {
    return {
        {"three words", {GrammarKind::Regex, "abc|abd|ba"}, {"abc", "abd", "ba"}},
        {"a repetition with bounds",
         {GrammarKind::Regex, "(ab|c){1,3}"},
         texts_of("abc", 6,
                  [](const std::string& text) {
                      std::size_t parts = 0;
                      for (std::size_t i = 0; i < text.size(); ++parts) {
                          if (text.compare(i, 2, "ab") == 0) {
                              i += 2;
                          } else if (text[i] == 'c') {
                              i += 1;
                          } else {
                              return false;
                          }
                      }
                      return parts >= 1 && parts <= 3;
                  })},
        {"nested brackets of depth three",
         {GrammarKind::Ebnf,
          "root ::= \"[\" one \"]\"\none ::= \"\" | \"{\" two \"}\"\ntwo ::= \"\" | \"a\" | \"b\""},
         {"[]", "[{}]", "[{a}]", "[{b}]"}},
        {"a letter of two bytes", {GrammarKind::Regex, "x\xc3\xa4?y"}, {"xy", "x\xc3\xa4y"}},
        {"a schema of an enum",
         {GrammarKind::JsonSchema,
          R"({"type":"object","properties":{"a":{"enum":[1,12,null]}},"required":["a"],"additionalProperties":false})"},
         {R"({"a": 1})", R"({"a": 12})", R"({"a": null})"}},
        {"a schema with a property that may be missing",
         {GrammarKind::JsonSchema,
          R"({"type":"object","properties":{"a":{"const":true},"b":{"const":false}},"required":["a"],"additionalProperties":false})"},
         {R"({"a": true})", R"({"a": true, "b": false})"}},
    };
}

/// Walks all sequences of tokens to a depth, and compares every mask.
void walk(GrammarMatcher& matcher,
          const std::vector<std::string>& texts,
          const std::string& before,
          std::size_t depth,
          std::size_t& masks) {
    static const GrammarVocabulary vocabulary = small_vocabulary();
    TokenMask mask;
    matcher.fill(mask);
    ++masks;
    REQUIRE(mask.vocab() == vocabulary.vocab_size);
    const std::set<std::string> whole{texts.begin(), texts.end()};
    std::vector<TokenId> allowed;
    for (std::size_t i = 0; i < vocabulary.vocab_size; ++i) {
        const auto token = static_cast<TokenId>(i);
        bool expected = false;
        if (token == kSmallEnd) {
            expected = whole.contains(before);
        } else if (i < vocabulary.texts.size() && !vocabulary.control[i] &&
                   !vocabulary.texts[i].empty()) {
            const std::string longer = before + vocabulary.texts[i];
            for (const std::string& text : texts) expected = expected || text.starts_with(longer);
        }
        CAPTURE(before);
        CAPTURE(i);
        CHECK(mask.allows(token) == expected);
        if (expected && token != kSmallEnd) allowed.push_back(token);
        if (!expected) CHECK_FALSE(matcher.accept(token));
    }
    if (depth == 0) return;
    for (const TokenId token : allowed) {
        REQUIRE(matcher.accept(token));
        walk(matcher, texts, before + vocabulary.texts[static_cast<std::size_t>(token)], depth - 1,
             masks);
        matcher.roll_back(1);
    }
}

TEST_CASE("a token is allowed if and only if a text of the language continues with it") {
    for (const Language& language : languages()) {
        CAPTURE(language.name);
        Result<std::unique_ptr<GrammarMatcher>> matcher = small_matcher(language.spec);
        if (!matcher) FAIL(matcher.error().what);
        std::size_t masks = 0;
        walk(*matcher.value(), language.texts, "", 7, masks);
        CHECK(masks > 3);
    }
}

TEST_CASE("bytes that are forced are a beginning of every text that continues") {
    for (const Language& language : languages()) {
        CAPTURE(language.name);
        const Result<std::unique_ptr<GrammarMatcher>> made = small_matcher(language.spec);
        REQUIRE(made.ok());
        GrammarMatcher& matcher = *made.value();
        std::string before;
        for (int step = 0; step < 6; ++step) {
            const std::string forced = matcher.forced_bytes();
            for (const std::string& text : language.texts) {
                if (text.starts_with(before) && text != before)
                    CHECK(text.starts_with((before + forced).substr(0, text.size())));
            }
            TokenMask mask;
            matcher.fill(mask);
            TokenId next = -1;
            for (TokenId token = 3; token < 60 && next < 0; ++token)
                if (mask.allows(token)) next = token;
            if (next < 0) break;
            REQUIRE(matcher.accept(next));
            before += small_vocabulary().texts[static_cast<std::size_t>(next)];
        }
    }
}

}  // namespace
}  // namespace paceline

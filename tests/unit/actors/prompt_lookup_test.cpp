#include "actors/decoding/guesses/prompt_lookup.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

struct Naive {
    std::vector<TokenId> tokens = {};
    int length = 0;  // of the match; 0: none
};

std::vector<TokenId> tokens_of(const std::vector<Candidate>& candidates) {
    std::vector<TokenId> tokens;
    for (const Candidate& candidate : candidates) tokens.push_back(candidate.token);
    return tokens;
}

/// The definition, by scanning the whole text: longest n-gram first, latest place first. After a
/// path the n-gram is looked for in the text alone.
Naive naive_behind(const std::vector<TokenId>& text,
                   const std::vector<TokenId>& path,
                   NgramRange range,
                   int gamma) {
    std::vector<TokenId> all = text;
    all.insert(all.end(), path.begin(), path.end());
    for (int n = range.max_ngram; n >= range.min_ngram; --n) {
        const auto length = static_cast<std::size_t>(n);
        if (text.size() < length + 1) continue;
        // Not the text's own end: nothing has followed it there.
        for (std::size_t begin = text.size() - length; begin-- > 0;) {
            if (!std::equal(all.end() - n, all.end(),
                            text.begin() + static_cast<std::ptrdiff_t>(begin)))
                continue;
            std::vector<TokenId> longer = all;
            for (int i = 0; i < gamma; ++i)
                longer.push_back(longer[begin + length + static_cast<std::size_t>(i)]);
            return {{longer.end() - gamma, longer.end()}, n};
        }
    }
    return {};
}

}  // namespace

TEST_CASE("a proposal equals the naive search on any text, after every token") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const NgramRange range{.min_ngram = 1 + static_cast<int>(seed % 3),
                               .max_ngram = 3 + static_cast<int>(seed % 14)};
        const auto alphabet = static_cast<TokenId>(2 + seed % 9);
        PromptLookup lookup = PromptLookup::make(range).value();
        std::vector<TokenId> text;
        std::size_t matches = 0;
        for (int i = 0; i < 200; ++i) {
            TokenId token = static_cast<TokenId>(random() % static_cast<std::uint64_t>(alphabet));
            if (i > 40 && i % 60 > 20) token = text[text.size() - 31];  // long matches too
            text.push_back(token);
            lookup.append(std::span{&token, 1});
            const int gamma = 1 + static_cast<int>(random() % 12);
            const Naive expected = naive_behind(text, {}, range, gamma);
            const std::vector<Candidate> said = lookup.propose(gamma);
            REQUIRE(tokens_of(said) == expected.tokens);
            for (std::size_t g = 0; g < said.size(); ++g) {
                const float p = lookup.confidence(expected.length + static_cast<int>(g));
                REQUIRE(said[g].log_prob == std::log(p));
            }
            matches += expected.tokens.empty() ? 0 : 1;
        }
        CHECK(matches > 0);
    }
}

TEST_CASE("a proposal after a path equals the naive search") {
    std::size_t matches = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const NgramRange range{.min_ngram = 1 + static_cast<int>(seed % 2),
                               .max_ngram = 3 + static_cast<int>(seed % 3)};
        std::vector<TokenId> text;
        std::vector<TokenId> path;
        for (std::uint64_t i = random() % 80; i > 0; --i) {
            text.push_back(static_cast<TokenId>(random() % 4));
        }
        for (std::uint64_t i = random() % 7; i > 0; --i) {
            path.push_back(static_cast<TokenId>(random() % 4));
        }
        PromptLookup lookup = PromptLookup::make(range).value();
        lookup.append(text);
        const Naive expected = naive_behind(text, path, range, 9);
        CHECK(tokens_of(lookup.propose(9, path)) == expected.tokens);
        matches += path.empty() || expected.tokens.empty() ? 0 : 1;
    }
    CHECK(matches > 50);
}

TEST_CASE(
    "the confidence in a length is how often it was right lately, all lengths by themselves") {
    // The definition: every token after a match counts 0.95 of the one after it.
    std::mt19937_64 random{11};
    PromptLookup lookup = PromptLookup::make({.min_ngram = 1, .max_ngram = 4}).value();
    std::vector<TokenId> text;
    std::vector<std::vector<bool>> outcomes(5);
    for (int i = 0; i < 400; ++i) {
        const Naive before = naive_behind(text, {}, {.min_ngram = 1, .max_ngram = 4}, 1);
        TokenId token = static_cast<TokenId>(random() % 40);
        if (!before.tokens.empty() && random() % 2 == 0) token = before.tokens[0];
        if (!before.tokens.empty()) {
            outcomes[static_cast<std::size_t>(before.length)].push_back(before.tokens[0] == token);
        }
        text.push_back(token);
        lookup.append(std::span{&token, 1});
    }
    const PromptLookup fresh = PromptLookup::make({}).value();
    for (std::size_t length = 1; length <= 4; ++length) {
        CAPTURE(length);
        double seen = 0.0;
        double right = 0.0;
        for (const bool outcome : outcomes[length]) {
            seen = seen * 0.95 + 1.0;
            right = right * 0.95 + (outcome ? 1.0 : 0.0);
        }
        CHECK(seen > 5.0);
        const double prior = fresh.confidence(static_cast<int>(length));
        CHECK(lookup.confidence(static_cast<int>(length)) ==
              doctest::Approx((right + 8.0 * prior) / (seen + 8.0)));
    }
    for (int length = 1; length < 40; ++length) {
        CHECK(fresh.confidence(length) <= fresh.confidence(length + 1));
    }
}

TEST_CASE("of more places than are looked at the latest count") {
    PromptLookup lookup = PromptLookup::make({.min_ngram = 1, .max_ngram = 4}).value();
    lookup.append(std::vector<TokenId>{1, 2, 3, 4});  // the longest match, but too long ago
    for (TokenId i = 0; i < PromptLookup::kPlacesMax; ++i) {
        lookup.append(std::vector<TokenId>{100 + i, 3});
    }
    lookup.append(std::vector<TokenId>{1, 2, 3});
    CHECK(lookup.propose(1).at(0).token == 1);
    CHECK(lookup.propose(1).at(0).log_prob == std::log(lookup.confidence(1)));
}

TEST_CASE("appending a prompt at once or token by token makes no difference") {
    const std::vector<TokenId> text{1, 2, 3, 4, 1, 2, 3, 9, 1, 2, 3};
    PromptLookup at_once = PromptLookup::make({}).value();
    at_once.append(text);
    PromptLookup one_by_one = PromptLookup::make({}).value();
    for (const TokenId token : text) one_by_one.append(std::span{&token, 1});
    CHECK(tokens_of(at_once.propose(5)) == tokens_of(one_by_one.propose(5)));
    CHECK(at_once.confidence(3) == one_by_one.confidence(3));
    CHECK(tokens_of(at_once.propose(3)) == std::vector<TokenId>{9, 1, 2});
}

TEST_CASE("a loop is proposed for the whole length, whatever its period") {
    PromptLookup lookup = PromptLookup::make({.min_ngram = 2, .max_ngram = 3}).value();
    const std::vector<TokenId> text{5, 6, 7, 5, 6, 7, 5};
    lookup.append(text);
    CHECK(tokens_of(lookup.propose(8)) == std::vector<TokenId>{6, 7, 5, 6, 7, 5, 6, 7});
}

TEST_CASE("no match, no text or no room gives no proposal") {
    PromptLookup lookup = PromptLookup::make({}).value();
    CHECK(lookup.propose(4).empty());
    const std::vector<TokenId> text{1, 2, 3, 4, 5};
    lookup.append(text);
    CHECK(lookup.propose(4).empty());
    CHECK(lookup.propose(0).empty());
}

TEST_CASE("n-gram lengths out of range are refused with their values") {
    const auto zero = PromptLookup::make({.min_ngram = 0, .max_ngram = 3});
    REQUIRE_FALSE(zero);
    CHECK(zero.error().what.find("min_ngram = 0") != std::string::npos);
    CHECK_FALSE(PromptLookup::make({.min_ngram = 3, .max_ngram = 2}));
    CHECK_FALSE(PromptLookup::make({.min_ngram = 2, .max_ngram = kNgramMax + 1}));
}

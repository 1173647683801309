#include "actors/decoding/prompt_lookup.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

/// The definition, by scanning the whole text: longest n-gram first, latest place first.
std::vector<TokenId> naive_proposal(const std::vector<TokenId>& text, NgramRange range, int gamma) {
    for (int n = range.max_ngram; n >= range.min_ngram; --n) {
        const auto length = static_cast<std::size_t>(n);
        if (text.size() < length + 1) continue;
        for (std::size_t begin = text.size() - length; begin-- > 0;) {
            if (!std::equal(text.end() - n, text.end(),
                            text.begin() + static_cast<std::ptrdiff_t>(begin)))
                continue;
            std::vector<TokenId> longer = text;
            for (int i = 0; i < gamma; ++i)
                longer.push_back(longer[begin + length + static_cast<std::size_t>(i)]);
            return {longer.end() - gamma, longer.end()};
        }
    }
    return {};
}

/// The same behind a path: the n-gram is looked for in the text alone.
std::vector<TokenId> naive_behind(const std::vector<TokenId>& text,
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
            return {longer.end() - gamma, longer.end()};
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
                               .max_ngram = 3 + static_cast<int>(seed % 4)};
        const auto alphabet = static_cast<TokenId>(2 + seed % 9);
        PromptLookup lookup = PromptLookup::make(range).value();
        std::vector<TokenId> text;
        std::size_t matches = 0;
        for (int i = 0; i < 200; ++i) {
            const TokenId token =
                static_cast<TokenId>(random() % static_cast<std::uint64_t>(alphabet));
            text.push_back(token);
            lookup.append(std::span{&token, 1});
            const int gamma = 1 + static_cast<int>(random() % 12);
            const std::vector<TokenId> expected = naive_proposal(text, range, gamma);
            REQUIRE(lookup.propose(gamma) == expected);
            matches += expected.empty() ? 0 : 1;
        }
        CHECK(matches > 0);
    }
}

TEST_CASE("a proposal behind a path equals the naive search") {
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
        const std::vector<TokenId> expected = naive_behind(text, path, range, 9);
        CHECK(lookup.propose(9, path) == expected);
        matches += path.empty() || expected.empty() ? 0 : 1;
    }
    CHECK(matches > 50);
}

TEST_CASE("appending a prompt at once or token by token makes no difference") {
    const std::vector<TokenId> text{1, 2, 3, 4, 1, 2, 3, 9, 1, 2, 3};
    PromptLookup at_once = PromptLookup::make({}).value();
    at_once.append(text);
    PromptLookup one_by_one = PromptLookup::make({}).value();
    for (const TokenId token : text) one_by_one.append(std::span{&token, 1});
    CHECK(at_once.propose(5) == one_by_one.propose(5));
    CHECK(at_once.propose(3) == std::vector<TokenId>{9, 1, 2});
}

TEST_CASE("a loop is guessed for the whole length, whatever its period") {
    PromptLookup lookup = PromptLookup::make({.min_ngram = 2, .max_ngram = 3}).value();
    const std::vector<TokenId> text{5, 6, 7, 5, 6, 7, 5};
    lookup.append(text);
    CHECK(lookup.propose(8) == std::vector<TokenId>{6, 7, 5, 6, 7, 5, 6, 7});
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

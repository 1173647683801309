// A mask of tokens, and what it does to logits.
#include "model/sampling/token_mask.hpp"

#include <doctest/doctest.h>

namespace paceline {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

TEST_CASE("a new mask allows nothing") {
    const TokenMask mask{70};
    CHECK(mask.count() == 0);
    CHECK_FALSE(mask.only().has_value());
    for (TokenId token = -1; token <= 70; ++token) CHECK_FALSE(mask.allows(token));
}

TEST_CASE("logits of tokens that are not allowed become -inf and the others keep their bits") {
    for (const std::size_t vocab :
         {std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{33}, std::size_t{100}}) {
        TokenMask mask{vocab};
        for (std::size_t token = 0; token < vocab; ++token)
            if (token % 3 == 0 || (token >= 32 && token < 64))
                mask.allow(static_cast<TokenId>(token));
        std::vector<float> logits(vocab);
        for (std::size_t i = 0; i < vocab; ++i) logits[i] = static_cast<float>(i) - 10.5f;
        mask.apply(logits);
        for (std::size_t i = 0; i < vocab; ++i) {
            CAPTURE(i);
            const bool allowed = mask.allows(static_cast<TokenId>(i));
            CHECK(logits[i] == (allowed ? static_cast<float>(i) - 10.5f : kNever));
        }
    }
}

TEST_CASE("a mask of one token names it, one of two does not") {
    TokenMask mask{100};
    mask.allow(65);
    CHECK(mask.only() == 65);
    mask.allow(66);
    CHECK_FALSE(mask.only().has_value());
    TokenMask apart{100};
    apart.allow(3);
    apart.allow(99);
    CHECK_FALSE(apart.only().has_value());
}

TEST_CASE("bits behind the vocabulary can be cleared") {
    TokenMask mask{33};
    for (std::uint32_t& word : mask.words()) word = ~0U;
    mask.trim();
    CHECK(mask.count() == 33);
}

}  // namespace
}  // namespace paceline

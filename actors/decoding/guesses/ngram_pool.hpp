// NgramPool: n-grams by their first token, the most recently seen ones of each: the guesses of
// Lookahead decoding, the phrases of Ouroboros.
//
// A function of the n-grams that were added, in their order. Bounded: `guesses` n-grams for each
// first token, and `firsts_max` first tokens; beyond them the one that was added to least recently
// goes. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class NgramPool {
public:
    static constexpr std::size_t kFirstsMax = 16384;

    /// Of `length` tokens, at most `guesses` of them kept for each first token.
    NgramPool(std::size_t length, std::size_t guesses, std::size_t firsts_max = kFirstsMax)
        : length_{length}, guesses_{guesses}, firsts_max_{firsts_max} {}

    /// `tokens` followed `first`, length - 1 of them. One that is known becomes the newest.
    void add(TokenId first, std::span<const TokenId> tokens);
    /// The n-grams of `text` that end in its last `tokens` tokens.
    void add_end_of(std::span<const TokenId> text, std::size_t tokens);
    /// What followed `first`, the newest first.
    [[nodiscard]] const std::deque<std::vector<TokenId>>& after(TokenId first) const;
    /// Tokens of an n-gram.
    [[nodiscard]] std::size_t length() const { return length_; }
    /// First tokens that are known.
    [[nodiscard]] std::size_t firsts() const { return pool_.size(); }

private:
    struct Known {
        std::deque<std::vector<TokenId>> ngrams = {};
        std::uint64_t added = 0;  // when; all are different
    };

    void forget_oldest();

    std::size_t length_;
    std::size_t guesses_;
    std::size_t firsts_max_;
    std::uint64_t additions_ = 0;
    std::unordered_map<TokenId, Known> pool_;
};

}  // namespace paceline

// NgramPool: n-grams by their first token, the most recently seen ones of each: the guesses of
// Lookahead decoding.
//
// A function of the n-grams that were added, in their order. Not thread-safe. Bounded by
// `guesses` n-grams for each first token.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class NgramPool {
public:
    /// Of `length` tokens, at most `guesses` of them kept for each first token.
    NgramPool(std::size_t length, std::size_t guesses) : length_{length}, guesses_{guesses} {}

    /// `tokens` followed `first`, length - 1 of them. One that is known becomes the newest.
    void add(TokenId first, std::span<const TokenId> tokens);
    /// The n-grams of `text` that end in its last `tokens` tokens.
    void add_end_of(std::span<const TokenId> text, std::size_t tokens);
    /// What followed `first`, the newest first.
    [[nodiscard]] const std::deque<std::vector<TokenId>>& after(TokenId first) const;

private:
    std::size_t length_;
    std::size_t guesses_;
    std::unordered_map<TokenId, std::deque<std::vector<TokenId>>> pool_;
};

}  // namespace paceline

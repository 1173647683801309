// TokenMask: which tokens of the vocabulary may come next, a bit for each.
//
// A value; one thread at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class TokenMask {
public:
    TokenMask() = default;
    /// Nothing is allowed.
    explicit TokenMask(std::size_t vocab) : vocab_{vocab}, words_((vocab + 31) / 32, 0) {}

    [[nodiscard]] std::size_t vocab() const { return vocab_; }
    /// Bit t % 32 of word t / 32 is token t; bits behind the vocabulary are 0.
    [[nodiscard]] std::span<std::uint32_t> words() { return words_; }
    [[nodiscard]] std::span<const std::uint32_t> words() const { return words_; }

    void allow(TokenId token) {
        words_[static_cast<std::size_t>(token) / 32] |= 1U
                                                        << (static_cast<std::uint32_t>(token) % 32);
    }
    [[nodiscard]] bool allows(TokenId token) const {
        const auto at = static_cast<std::size_t>(token);
        return token >= 0 && at < vocab_ && (words_[at / 32] >> (at % 32) & 1U) != 0;
    }
    [[nodiscard]] std::size_t count() const {
        std::size_t bits = 0;
        for (const std::uint32_t word : words_)
            bits += static_cast<std::size_t>(std::popcount(word));
        return bits;
    }
    /// The token that is allowed, if it is the only one.
    [[nodiscard]] std::optional<TokenId> only() const;
    /// Clears bits that are behind the vocabulary.
    void trim() {
        if (vocab_ % 32 != 0 && !words_.empty()) words_.back() &= (1U << (vocab_ % 32)) - 1;
    }

    /// Logits [vocab] of tokens that are not allowed become -inf.
    void apply(std::span<float> logits) const;

private:
    std::size_t vocab_ = 0;
    std::vector<std::uint32_t> words_;
};

}  // namespace paceline

// Bpe: byte-pair encoding of one piece of text, or of symbols that were made of one.
//
// The pair with the best (lowest) rank is merged first, of equal ones the leftmost, until no
// pair of neighbours is in the list of merges. A piece of n bytes costs O(n log n).
// Immutable once all merges are added; then any thread, each with a Scratch of its own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class Bpe {
public:
    /// `byte_tokens[b]` is the token of the byte b alone, or -1 if the vocabulary lacks it: such
    /// bytes vanish from the text, as they do in the Hugging Face library.
    Bpe(const std::array<TokenId, 256>& byte_tokens, std::size_t merges_expected);

    /// The pair (left, right) becomes `joined`; `rank` is its place in the list of merges.
    /// A pair that was there before takes the new rank and result.
    void add_merge(TokenId left, TokenId right, std::int32_t rank, TokenId joined);

    /// Memory that encode() uses again from piece to piece.
    class Scratch {
        friend class Bpe;
        struct Symbol {
            TokenId token;  // -1: merged into the one before
            std::int32_t previous, next;
        };
        struct Candidate {
            std::uint64_t order;  // rank, then place: both ascending
            TokenId left, right, joined;
        };
        std::vector<Symbol> symbols_;
        std::vector<Candidate> heap_;
    };

    /// Appends the tokens of `piece` to `out`: its bytes are what is merged.
    void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

    /// Appends what is left of `symbols` (none of them negative) once they are merged.
    void merge(std::span<const TokenId> symbols, Scratch& scratch, std::vector<TokenId>& out) const;

private:
    struct Merge {
        std::uint64_t pair = kEmpty;
        std::int32_t rank = 0;
        TokenId joined = 0;
    };
    static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // no pair: tokens are not negative

    [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const;
    [[nodiscard]] const Merge* find(TokenId left, TokenId right) const;
    void grow();
    static void push_symbol(Scratch& scratch, TokenId token);
    void finish(Scratch& scratch, std::vector<TokenId>& out) const;
    void push_candidate(Scratch& scratch, std::int32_t left) const;
    void merge_all(Scratch& scratch) const;

    std::array<TokenId, 256> byte_tokens_;
    std::vector<Merge> merges_;  // open addressing, a power of two, at most half full
    std::size_t merge_count_ = 0;
};

}  // namespace paceline

// AddedTokens: finds the tokens that are taken out of a text before it is pre-tokenized.
//
// The leftmost match counts, and of those that begin there the longest; matches do not overlap.
// Immutable once all tokens are added; then any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class AddedTokens {
public:
    /// Whether a token takes the white space beside it with it.
    struct Strip {
        bool before;
        bool after;
    };
    /// `text` is not empty. Of two tokens with one text the first one added counts.
    void add(std::string_view text, TokenId token, Strip strip = {false, false});

    struct Match {
        std::size_t begin, end;  // begin == end == text.size(): nothing found
        TokenId token;
        std::size_t token_begin, token_end;  // without the white space beside it
    };
    /// The first match in `text` at or after `from`; white space that the token takes is part of
    /// it.
    [[nodiscard]] Match next(std::string_view text, std::size_t from) const;

private:
    static constexpr TokenId kNone = -1;
    struct Node {
        TokenId token = kNone;
        Strip strip{false, false};
        std::unordered_map<char, std::size_t> children;
    };
    [[nodiscard]] Match match_at(std::string_view text, std::size_t begin, std::size_t from) const;

    std::vector<Node> nodes_{1};      // a trie of bytes; the root is first
    std::array<bool, 256> begins_{};  // bytes with which a token begins
};

}  // namespace paceline

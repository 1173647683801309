// ByteTokens: the tokens "<0x00>" to "<0xFF>" of a SentencePiece vocabulary. A character that the
// vocabulary lacks is encoded as its bytes, or as the unknown token.
//
// Immutable, any thread.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "model/tokenizer/vocabulary.hpp"

namespace paceline {

/// The byte that a token of this text stands for ("<0x0A>"), if its form is that of one.
[[nodiscard]] std::optional<char> byte_named(std::string_view token_text);

class ByteTokens {
public:
    ByteTokens(const TokenizerData& data, const Vocabulary& vocabulary);

    /// An unknown character waits for what follows: side by side several may be one token.
    struct Pending {
        bool unknown = false;
    };
    /// Appends the bytes of `character` if all of them are tokens, in front of an unknown one that
    /// waits, as the Hugging Face library does; else it is unknown and waits.
    void append(std::string_view character, Pending& pending, std::vector<TokenId>& out) const;
    /// Appends a token that appending has made before: an unknown one waits again.
    void append_again(TokenId token, Pending& pending, std::vector<TokenId>& out) const;
    /// Writes the unknown token that waits.
    void flush(Pending& pending, std::vector<TokenId>& out) const;

private:
    void wait(Pending& pending, std::vector<TokenId>& out) const;

    std::array<TokenId, 256> tokens_{};  // -1: none, or bytes are not asked for
    TokenId unknown_ = -1;               // -1: unknown characters vanish
    bool fuses_ = true;
};

}  // namespace paceline

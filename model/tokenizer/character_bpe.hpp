// CharacterBpe: SentencePiece BPE of one piece of text, whose symbols are characters.
//
// A vocabulary with merges (tokenizer.json) is merged by their order. One without (GGUF) joins the
// neighbours whose joined text is the token with the highest score, of equal ones the leftmost:
// every way to cut a token into two symbols is a merge, ranked by its score. A character that is in
// tokens but is none itself gets a symbol of its own above the vocabulary, which is taken apart
// again if nothing was joined to it. Other unknown characters are ByteTokens' affair.
// Immutable, any thread.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/tokenizer/bpe.hpp"
#include "model/tokenizer/byte_tokens.hpp"
#include "model/tokenizer/vocabulary.hpp"

namespace paceline {

/// Of one entry that text may become: trying all its cuts takes time with its square. Real
/// vocabularies have at most 93 bytes (Gemma's run of spaces).
inline constexpr std::size_t kPieceBytesMax = 256;

class CharacterBpe {
public:
    /// `vocabulary` must outlive it.
    /// Errors: BadFile: malformed merges; without merges: no kinds, no scores, or not as many as
    /// tokens, one that is not a number, an entry of more than kPieceBytesMax, tokens that can be
    /// joined of others in more ways than 32 a token and 65,536 in all.
    static Result<CharacterBpe> make(const TokenizerData& data, const Vocabulary& vocabulary);

    /// Appends the tokens of `piece`, which is valid UTF-8.
    void encode(std::string_view piece, std::vector<TokenId>& out) const;

private:
    CharacterBpe(const TokenizerData& data, const Vocabulary& vocabulary);
    Status add_merges(const TokenizerData& data);
    Status check_scored(const TokenizerData& data) const;
    Status add_scored_merges(const TokenizerData& data);
    void add_symbols_of_characters(std::string_view text);
    /// Returns how many merges make the token.
    std::size_t add_cuts(TokenId token, std::int32_t rank);
    [[nodiscard]] TokenId symbol_of(std::string_view text) const;

    const Vocabulary* vocabulary_;
    ByteTokens bytes_;
    Bpe bpe_;
    std::unordered_map<std::string_view, TokenId> plain_;  // tokens that text may become
    std::unordered_map<char32_t, TokenId> characters_;     // the symbol of a character
    std::vector<std::string> extra_;  // characters whose symbols lie above the vocabulary
    bool whole_pieces_ = false;       // a piece that is a token is taken whole
};

}  // namespace paceline

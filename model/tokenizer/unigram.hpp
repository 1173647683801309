// Unigram: the pieces of a text whose scores (logarithms of probabilities) have the highest sum.
//
// Viterbi over the places where a character begins; of equal sums the one found first stays, which
// is that of the longer last piece. A character that is no piece costs kUnknownPenalty below the
// lowest score; such characters side by side become their bytes, or one unknown token.
// Sums are in double, in the order of the text. Source: the Hugging Face tokenizers library.
// Immutable, any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/tokenizer/byte_tokens.hpp"
#include "model/tokenizer/vocabulary.hpp"

namespace paceline {

class Unigram {
public:
    static constexpr double kUnknownPenalty = 10.0;

    /// Errors: BadFile: no unknown token, scores that are not as many as tokens, an entry of more
    /// than kPieceBytesMax (character_bpe.hpp), more nodes of the trie than 32 a token and 65,536
    /// in all.
    static Result<Unigram> make(const TokenizerData& data, const Vocabulary& vocabulary);

    /// Appends the tokens of `piece`, which is valid UTF-8.
    void encode(std::string_view piece, std::vector<TokenId>& out) const;

private:
    struct Edge {
        std::uint64_t key = kNoEdge;  // node << 8 | byte
        std::uint32_t child = 0;
    };
    struct Node {
        TokenId token = -1;
        double score = 0.0;
    };
    /// The best way to a place of the text: what its last piece is.
    struct Step {
        double sum = 0.0;
        std::size_t begin = kNoStep;
        TokenId token = -1;  // -1: an unknown character
    };
    static constexpr std::uint64_t kNoEdge = ~std::uint64_t{0};
    static constexpr std::size_t kNoStep = ~std::size_t{0};

    Unigram(const TokenizerData& data, const Vocabulary& vocabulary);
    Status add_all(const TokenizerData& data, const Vocabulary& vocabulary);
    void add(std::string_view text, TokenId token, double score);
    [[nodiscard]] std::size_t slot_of(std::uint64_t key) const;
    void reach(std::vector<Step>& steps, std::string_view piece, std::size_t at) const;

    ByteTokens bytes_;
    double unknown_score_ = 0.0;
    std::vector<Edge> edges_;     // open addressing, a power of two, at most half full
    std::size_t edge_count_ = 0;  // of a trie of the bytes of all pieces
    std::vector<Node> nodes_{1};  // the root is first
};

}  // namespace paceline

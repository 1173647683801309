#include "model/tokenizer/byte_level_encoder.hpp"

#include <array>
#include <string>
#include <unordered_map>
#include <utility>

#include "model/tokenizer/bpe.hpp"
#include "model/tokenizer/byte_level.hpp"

namespace paceline {
namespace {

Result<Bpe> read_merges(const TokenizerData& data, const Vocabulary& vocabulary) {
    std::array<TokenId, 256> byte_tokens{};
    for (unsigned byte = 0; byte < 256; ++byte) {
        byte_tokens[byte] =
            vocabulary.plain_id_of(byte_level::symbol(static_cast<std::uint8_t>(byte)));
    }
    if (data.merges.empty())
        return bad_vocabulary(
            "tokenizer.ggml.merges is missing or empty: every text would be encoded as single "
            "bytes, which no model was trained on; convert the model again");
    Bpe bpe{byte_tokens, data.merges.size()};
    const Status added = for_each_merge(data, vocabulary, [&](const MergeEntry& merge) {
        if (vocabulary.is_control(merge.joined_id)) return;  // text never becomes one
        bpe.add_merge(merge.left_id, merge.right_id, merge.rank, merge.joined_id);
    });
    if (!added) return added.error();
    return bpe;
}

/// Whether a piece that is a token is taken whole where the file does not say.
bool takes_whole_words(std::string_view pre) {
    return pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3" || pre == "tekken";
}

class ByteLevelEncoder final : public TextEncoder {
public:
    ByteLevelEncoder(const TokenizerData& data,
                     PreTokenizer pre,
                     const Vocabulary& vocabulary,
                     Bpe bpe)
        : pre_{pre}, bpe_{std::move(bpe)} {
        if (!data.whole_words.value_or(takes_whole_words(data.pre))) return;
        for (std::size_t i = 0; i < vocabulary.size(); ++i) {
            const auto token = static_cast<TokenId>(i);
            // What a control token consists of must not become that token by the back door.
            if (vocabulary.kind(token) == TokenKind::Normal)
                whole_words_.emplace(byte_level_bytes(vocabulary, token), token);
        }
    }

    void encode(std::string_view text,
                Before /*before*/,
                std::vector<TokenId>& out) const override {
        Bpe::Scratch scratch;
        std::vector<std::string_view> pieces;
        cut_pieces(pre_, text, pieces);
        for (const std::string_view piece : pieces) {
            const auto whole = whole_words_.find(piece);  // mostly empty
            if (whole != whole_words_.end()) {
                out.push_back(whole->second);
            } else {
                bpe_.encode(piece, scratch, out);
            }
        }
    }

private:
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };
    PreTokenizer pre_;
    Bpe bpe_;
    std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> whole_words_;
};

}  // namespace

Result<std::unique_ptr<TextEncoder>> make_byte_level_encoder(const TokenizerData& data,
                                                             PreTokenizer pre,
                                                             const Vocabulary& vocabulary) {
    Result<Bpe> bpe = read_merges(data, vocabulary);
    if (!bpe) return bpe.error();
    return std::unique_ptr<TextEncoder>{
        std::make_unique<ByteLevelEncoder>(data, pre, vocabulary, std::move(bpe).value())};
}

std::string byte_level_bytes(const Vocabulary& vocabulary, TokenId token) {
    const std::string& text = vocabulary.text(token);
    if (vocabulary.is_added(token)) return text;
    return byte_level::decode(text).value_or(text);
}

}  // namespace paceline

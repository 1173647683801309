#include "model/tokenizer/piece_encoder.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/tokenizer/character_bpe.hpp"
#include "model/tokenizer/unigram.hpp"

namespace paceline {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t found = std::min(text.find(from, at), text.size());
        out.append(text.substr(at, found - at));
        if (found < text.size()) out.append(to);
        at = found + from.size();
    }
    return out;
}

/// Where the next piece ends: in front of the next U+2581 that does not begin it.
std::size_t piece_end(std::string_view text) {
    const std::size_t next = text.find(kSpacePiece, text.starts_with(kSpacePiece) ? 1 : 0);
    return std::min(next, text.size());
}

template <class Model>
class PieceEncoder final : public TextEncoder {
public:
    PieceEncoder(const PieceRules& rules, Model model)
        : metaspace_{rules.metaspace},
          prefix_{rules.prefix},
          cut_{rules.cut_at_spaces},
          model_{std::move(model)} {}

    void encode(std::string_view text, Before before, std::vector<TokenId>& out) const override {
        if (text.empty()) return;
        std::string spaced;
        if (metaspace_) {
            spaced = replaced(text, " ", kSpacePiece);
            if (begins_with_space(before) && !spaced.starts_with(kSpacePiece))
                spaced.insert(0, kSpacePiece);
            text = spaced;
        }
        while (!text.empty()) {
            const std::size_t end = metaspace_ && cut_ ? piece_end(text) : text.size();
            model_.encode(text.substr(0, end), out);
            text.remove_prefix(end);
        }
    }

private:
    [[nodiscard]] bool begins_with_space(Before before) const {
        switch (prefix_) {
            case PieceRules::Prefix::Never:
                return false;
            case PieceRules::Prefix::First:
                return before == Before::Nothing;
            case PieceRules::Prefix::Always:
                return before != Before::Text;
        }
        return false;
    }

    bool metaspace_;
    PieceRules::Prefix prefix_;
    bool cut_;
    Model model_;
};

template <class Model>
Result<std::unique_ptr<TextEncoder>> made(const TokenizerData& data, Result<Model> model) {
    if (!model) return model.error();
    return std::unique_ptr<TextEncoder>{
        std::make_unique<PieceEncoder<Model>>(data.pieces, std::move(model).value())};
}

}  // namespace

Result<std::unique_ptr<TextEncoder>> make_piece_encoder(const TokenizerData& data,
                                                        const Vocabulary& vocabulary) {
    if (data.model == "unigram") return made(data, Unigram::make(data, vocabulary));
    return made(data, CharacterBpe::make(data, vocabulary));
}

std::string piece_bytes(const Vocabulary& vocabulary, TokenId token) {
    const std::string& text = vocabulary.text(token);
    if (vocabulary.is_control(token)) return text;
    if (vocabulary.kind(token) == TokenKind::Byte) {
        if (const std::optional<char> byte = byte_named(text)) return std::string(1, *byte);
    }
    return replaced(text, kSpacePiece, " ");
}

}  // namespace paceline

#include "model/tokenizer/character_bpe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>

#include "ipc/base/utf8.hpp"

namespace paceline {
namespace {

std::array<TokenId, 256> no_bytes() {
    std::array<TokenId, 256> none{};
    none.fill(-1);
    return none;
}

/// Calls `use` with each character of `text`, valid UTF-8, and its code point.
template <class Use>
void for_each_character(std::string_view text, Use use) {
    while (!text.empty()) {
        const utf8::Step step = utf8::first(text);
        use(text.substr(0, step.bytes), step.code);
        text.remove_prefix(step.bytes);
    }
}

/// Whether text may become such a token by joining. Merges name tokens of the user too (Gemma's
/// runs of spaces); scores do not say of these what joins to them.
bool may_join(TokenKind kind, bool by_merges) {
    return kind == TokenKind::Normal || (by_merges && kind == TokenKind::User);
}

/// How many merges the scores of a vocabulary may make; real ones have about two a token.
std::size_t merges_max(const TokenizerData& data) {
    return std::max<std::size_t>(65'536, 32 * data.tokens.size());
}

}  // namespace

CharacterBpe::CharacterBpe(const TokenizerData& data, const Vocabulary& vocabulary)
    : vocabulary_{&vocabulary},
      bytes_{data, vocabulary},
      bpe_{no_bytes(), data.merges.empty() ? 4 * data.tokens.size() : data.merges.size()},
      whole_pieces_{data.whole_words.value_or(false)} {
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        const std::string& text = vocabulary.text(token);
        if (!may_join(vocabulary.kind(token), !data.merges.empty()) || text.empty()) continue;
        if (utf8::valid_prefix(text) != text.size()) continue;  // no text is like it
        if (!plain_.emplace(text, token).second) continue;
        const utf8::Step step = utf8::first(text);
        if (step.bytes == text.size()) characters_.emplace(step.code, token);
    }
}

Result<CharacterBpe> CharacterBpe::make(const TokenizerData& data, const Vocabulary& vocabulary) {
    CharacterBpe bpe{data, vocabulary};
    if (!data.merges.empty()) {
        if (Status added = bpe.add_merges(data); !added) return added.error();
        return bpe;
    }
    if (Status right = bpe.check_scored(data); !right) return right.error();
    if (Status added = bpe.add_scored_merges(data); !added) return added.error();
    return bpe;
}

Status CharacterBpe::add_merges(const TokenizerData& data) {
    return for_each_merge(data, *vocabulary_, [&](const MergeEntry& merge) {
        const TokenId left = symbol_of(merge.left), right = symbol_of(merge.right),
                      joined = symbol_of(merge.joined);
        // A control token never comes of text.
        if (left < 0 || right < 0 || joined < 0) return;
        bpe_.add_merge(left, right, merge.rank, joined);
    });
}

Status CharacterBpe::check_scored(const TokenizerData& data) const {
    if (data.kinds.empty())
        return bad_vocabulary(
            "tokenizer.ggml.token_type is missing: control tokens of a SentencePiece vocabulary "
            "cannot be told from text; convert the model again");
    if (data.scores.size() != data.tokens.size())
        return bad_vocabulary(
            fmt::format("tokenizer.ggml.scores has {} entries, tokenizer.ggml.tokens has {}",
                        data.scores.size(), data.tokens.size()));
    for (const auto& [text, token] : plain_) {
        if (text.size() > kPieceBytesMax)
            return bad_vocabulary(
                fmt::format("tokenizer.ggml.tokens[{}] has {} bytes; the limit of "
                            "a SentencePiece vocabulary is {}",
                            token, text.size(), kPieceBytesMax));
        if (std::isnan(data.scores[static_cast<std::size_t>(token)]))
            return bad_vocabulary(fmt::format("tokenizer.ggml.scores[{}] is not a number", token));
    }
    return {};
}

void CharacterBpe::add_symbols_of_characters(std::string_view text) {
    for_each_character(text, [&](std::string_view character, char32_t code) {
        const auto symbol = static_cast<TokenId>(vocabulary_->size() + extra_.size());
        if (characters_.emplace(code, symbol).second) extra_.emplace_back(character);
    });
}

Status CharacterBpe::add_scored_merges(const TokenizerData& data) {
    std::vector<TokenId> order;
    for (const auto& [text, token] : plain_) {
        if (utf8::first(text).bytes < text.size()) order.push_back(token);
    }
    const auto score = [&](TokenId token) { return data.scores[static_cast<std::size_t>(token)]; };
    std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
        return score(a) != score(b) ? score(a) > score(b) : a < b;
    });
    for (const TokenId token : order) add_symbols_of_characters(vocabulary_->text(token));
    std::int32_t rank = 0;
    std::size_t merges = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
        // Tokens of one score share a rank: of these the leftmost in the text comes first.
        if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
        merges += add_cuts(order[i], rank);
        if (merges > merges_max(data))
            return bad_vocabulary(fmt::format(
                "tokenizer.ggml.tokens: the tokens can be joined of others in more than {} ways; "
                "{} tokens may have no more",
                merges_max(data), data.tokens.size()));
    }
    return {};
}

std::size_t CharacterBpe::add_cuts(TokenId token, std::int32_t rank) {
    const std::string_view text = vocabulary_->text(token);
    std::size_t cut = 0, merges = 0;
    for_each_character(text, [&](std::string_view character, char32_t /*code*/) {
        const TokenId left = cut == 0 ? -1 : symbol_of(text.substr(0, cut));
        const TokenId right = left < 0 ? -1 : symbol_of(text.substr(cut));
        if (right >= 0) {
            bpe_.add_merge(left, right, rank, token);
            ++merges;
        }
        cut += character.size();
    });
    return merges;
}

TokenId CharacterBpe::symbol_of(std::string_view text) const {
    const auto found = plain_.find(text);
    if (found != plain_.end()) return found->second;
    if (text.empty()) return -1;
    const utf8::Step step = utf8::first(text);
    if (step.form != utf8::Form::Whole || step.bytes < text.size()) return -1;
    const auto character = characters_.find(step.code);
    return character == characters_.end() ? -1 : character->second;
}

void CharacterBpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
    if (whole_pieces_) {
        const auto whole = plain_.find(piece);
        // The library takes the text "<0x0A>" for the token too.
        const TokenId token = whole != plain_.end() ? whole->second
                              : byte_named(piece)   ? vocabulary_->plain_id_of(piece)
                                                    : -1;
        if (token >= 0) {
            out.push_back(token);
            return;
        }
    }
    Bpe::Scratch scratch;
    std::vector<TokenId> symbols, merged;
    symbols.reserve(piece.size());
    ByteTokens::Pending pending;
    for_each_character(piece, [&](std::string_view character, char32_t code) {
        const auto known = characters_.find(code);
        if (known == characters_.end()) {
            bytes_.append(character, pending, symbols);
        } else {
            bytes_.flush(pending, symbols);
            symbols.push_back(known->second);
        }
    });
    bytes_.flush(pending, symbols);
    bpe_.merge(symbols, scratch, merged);
    const auto above = static_cast<TokenId>(vocabulary_->size());
    for (const TokenId symbol : merged) {
        if (symbol >= above) {
            bytes_.append(extra_[static_cast<std::size_t>(symbol - above)], pending, out);
        } else {
            bytes_.append_again(symbol, pending, out);
        }
    }
    bytes_.flush(pending, out);
}

}  // namespace paceline

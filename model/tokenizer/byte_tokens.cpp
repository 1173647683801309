#include "model/tokenizer/byte_tokens.hpp"

#include <algorithm>
#include <fmt/core.h>

namespace paceline {
namespace {

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

}  // namespace

std::optional<char> byte_named(std::string_view token_text) {
    if (token_text.size() != 6 || !token_text.starts_with("<0x") || token_text[5] != '>')
        return std::nullopt;
    const int high = hex_digit(token_text[3]), low = hex_digit(token_text[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<char>(high * 16 + low);
}

ByteTokens::ByteTokens(const TokenizerData& data, const Vocabulary& vocabulary)
    : unknown_{data.unknown.value_or(-1)}, fuses_{data.pieces.fuse_unknown} {
    tokens_.fill(-1);
    if (!data.pieces.byte_fallback) return;
    for (unsigned byte = 0; byte < 256; ++byte)
        tokens_[byte] = vocabulary.plain_id_of(fmt::format("<0x{:02X}>", byte));
}

void ByteTokens::append(std::string_view character,
                        Pending& pending,
                        std::vector<TokenId>& out) const {
    const auto token_of = [&](char c) { return tokens_[static_cast<unsigned char>(c)]; };
    if (std::all_of(character.begin(), character.end(), [&](char c) { return token_of(c) >= 0; })) {
        for (const char c : character) out.push_back(token_of(c));
        return;
    }
    if (unknown_ >= 0) wait(pending, out);
}

void ByteTokens::append_again(TokenId token, Pending& pending, std::vector<TokenId>& out) const {
    if (token == unknown_) return wait(pending, out);
    flush(pending, out);
    out.push_back(token);
}

void ByteTokens::wait(Pending& pending, std::vector<TokenId>& out) const {
    if (pending.unknown && !fuses_) out.push_back(unknown_);
    pending.unknown = true;
}

void ByteTokens::flush(Pending& pending, std::vector<TokenId>& out) const {
    if (pending.unknown) out.push_back(unknown_);
    pending.unknown = false;
}

}  // namespace paceline

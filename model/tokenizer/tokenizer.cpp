#include "model/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <unordered_map>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/utf8.hpp"
#include "model/tokenizer/added_tokens.hpp"
#include "model/tokenizer/bpe.hpp"
#include "model/tokenizer/byte_level.hpp"
#include "model/tokenizer/nfc.hpp"
#include "model/tokenizer/pre_tokenizer.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

struct Tokenizer::Impl {
    std::vector<std::string> texts;                             // as the file states them
    std::vector<TokenKind> kinds;                               // as many as texts
    std::vector<std::string> bytes;                             // what each token stands for
    std::unordered_map<std::string_view, TokenId> ids;          // text (of texts) to token
    std::unordered_map<std::string_view, TokenId> whole_words;  // bytes to token; llama3, as a rule
    AddedTokens added;
    Bpe bpe{{}, 0};
    PreTokenizer pre = PreTokenizer::Gpt2;
    bool normal_form_c = false;
    std::optional<TokenId> prompt_bos;
    std::vector<TokenId> end_tokens;

    [[nodiscard]] TokenKind kind(TokenId token) const {
        return kinds[static_cast<std::size_t>(token)];
    }
    [[nodiscard]] bool is_control(TokenId token) const {
        return kind(token) == TokenKind::Control || kind(token) == TokenKind::Unknown;
    }
    [[nodiscard]] TokenId id_of(std::string_view text) const {
        const auto found = ids.find(text);
        return found == ids.end() ? -1 : found->second;
    }

    Status read_vocabulary(const TokenizerData& data);
    Status read_merges(const TokenizerData& data);
    Status read_special_ids(const TokenizerData& data);
    void encode_plain(std::string_view text,
                      Bpe::Scratch& scratch,
                      std::vector<TokenId>& out) const;
};

namespace {

/// A token that is found in the text before the text is pre-tokenized.
bool is_added(TokenKind kind) {
    return kind == TokenKind::Control || kind == TokenKind::Unknown || kind == TokenKind::User;
}

/// What the file says of white space beside an added token.
AddedTokens::Strip strip_of(const TokenizerData& data, TokenId token) {
    for (const GreedyToken& greedy : data.greedy_tokens) {
        if (greedy.token == token) return {greedy.before, greedy.after};
    }
    return {false, false};
}

Error bad_file(std::string what) {
    return Error{Errc::BadFile, std::move(what)};
}

Error bad_merge(std::size_t rank, std::string_view merge, std::string_view why) {
    return bad_file(fmt::format("tokenizer.ggml.merges[{}] is {}: {}", rank, quoted(merge), why));
}

}  // namespace

Status Tokenizer::Impl::read_vocabulary(const TokenizerData& data) {
    if (data.tokens.empty())
        return bad_file("tokenizer.ggml.tokens is empty: there is no vocabulary");
    if (!data.kinds.empty() && data.kinds.size() != data.tokens.size()) {
        return bad_file(
            fmt::format("tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens has {}",
                        data.kinds.size(), data.tokens.size()));
    }
    texts = data.tokens;
    kinds = data.kinds.empty() ? std::vector(texts.size(), TokenKind::Normal) : data.kinds;
    bytes.reserve(texts.size());
    ids.reserve(texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        ids.emplace(texts[i], token);
        if (is_added(kinds[i])) {
            if (texts[i].empty()) {
                return bad_file(fmt::format(
                    "tokenizer.ggml.tokens[{}] is a control or user token without text", i));
            }
            added.add(texts[i], token, strip_of(data, token));
            bytes.push_back(texts[i]);
        } else {
            bytes.push_back(byte_level::decode(texts[i]).value_or(texts[i]));
        }
    }
    if (data.whole_words.value_or(pre == PreTokenizer::Llama3)) {
        for (std::size_t i = 0; i < texts.size(); ++i) {
            // What a control token consists of must not become that token by the back door.
            if (kinds[i] == TokenKind::Normal)
                whole_words.emplace(bytes[i], static_cast<TokenId>(i));
        }
    }
    return {};
}

Status Tokenizer::Impl::read_merges(const TokenizerData& data) {
    std::array<TokenId, 256> byte_tokens{};
    for (unsigned byte = 0; byte < 256; ++byte) {
        byte_tokens[byte] = id_of(byte_level::symbol(static_cast<std::uint8_t>(byte)));
    }
    if (data.merges.empty())
        return bad_file(
            "tokenizer.ggml.merges is missing or empty: every text would be encoded as single "
            "bytes, which no model was trained on; convert the model again");
    bpe = Bpe{byte_tokens, data.merges.size()};
    std::string joined;
    for (std::size_t rank = 0; rank < data.merges.size(); ++rank) {
        const std::string_view merge = data.merges[rank];
        const std::size_t space = merge.find(' ');
        if (space == merge.npos || merge.find(' ', space + 1) != merge.npos) {
            return bad_merge(rank, merge, "not two tokens with a space between");
        }
        const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
        joined.assign(left).append(right);
        const TokenId left_id = id_of(left), right_id = id_of(right), joined_id = id_of(joined);
        if (left_id < 0 || right_id < 0 || joined_id < 0) {
            return bad_merge(rank, merge, "the vocabulary lacks a part of it or the whole");
        }
        bpe.add_merge(left_id, right_id, static_cast<std::int32_t>(rank), joined_id);
    }
    return {};
}

Status Tokenizer::Impl::read_special_ids(const TokenizerData& data) {
    const std::pair<const char*, std::optional<TokenId>> named[] = {
        {"bos", data.bos}, {"eos", data.eos}, {"eot", data.eot}, {"eom", data.eom}};
    for (const auto& [name, token] : named) {
        if (token && (*token < 0 || static_cast<std::size_t>(*token) >= texts.size())) {
            return bad_file(
                fmt::format("tokenizer.ggml.{}_token_id is {}, the vocabulary has {} tokens", name,
                            *token, texts.size()));
        }
    }
    if (data.add_bos) prompt_bos = data.bos;
    for (const TokenId token : data.end_tokens) {
        if (token < 0 || static_cast<std::size_t>(token) >= texts.size())
            return bad_file(
                fmt::format("token {}, which ends an answer, is none of {}", token, texts.size()));
    }
    end_tokens = data.end_tokens;
    for (const auto& token : {data.eos, data.eot, data.eom}) {
        if (token) end_tokens.push_back(*token);
    }
    for (const char* text : {"<|im_end|>", "<|eot_id|>", "<|endoftext|>"}) {
        const TokenId token = id_of(text);
        if (token >= 0 && is_control(token)) end_tokens.push_back(token);
    }
    std::sort(end_tokens.begin(), end_tokens.end());
    end_tokens.erase(std::unique(end_tokens.begin(), end_tokens.end()), end_tokens.end());
    return {};
}

/// Encodes text between added tokens; it is valid UTF-8.
void Tokenizer::Impl::encode_plain(std::string_view text,
                                   Bpe::Scratch& scratch,
                                   std::vector<TokenId>& out) const {
    std::string normal_form;
    if (normal_form_c && !unicode::surely_nfc(text)) {
        normal_form = unicode::nfc(text);
        text = normal_form;
    }
    while (!text.empty()) {
        const std::string_view piece = text.substr(0, first_piece(pre, text));
        PACE_CHECK(!piece.empty(), "a pre-tokenizer always goes on");
        text.remove_prefix(piece.size());
        const auto whole = whole_words.find(piece);  // mostly empty
        if (whole != whole_words.end()) {
            out.push_back(whole->second);
        } else {
            bpe.encode(piece, scratch, out);
        }
    }
}

Result<Tokenizer> Tokenizer::make(const TokenizerData& data) {
    if (!data.refusal.empty()) return Error{Errc::Unsupported, data.refusal};
    if (data.model != "gpt2") {
        return Error{Errc::Unsupported,
                     "tokenizer model " + quoted(data.model) +
                         " (tokenizer.ggml.model) is not supported; supported: gpt2"};
    }
    const std::optional<PreTokenizer> pre = pre_tokenizer_named(data.pre);
    if (!pre) {
        return Error{Errc::Unsupported, "pre-tokenizer " + quoted(data.pre) +
                                            " (tokenizer.ggml.pre) is not supported; supported: "
                                            "smollm, starcoder, gpt-2, llama-bpe, qwen2"};
    }
    auto impl = std::make_unique<Impl>();
    impl->pre = *pre;
    impl->normal_form_c = data.normal_form_c.value_or(*pre == PreTokenizer::Qwen2);
    if (Status read = impl->read_vocabulary(data); !read) return read.error();
    if (Status read = impl->read_merges(data); !read) return read.error();
    if (Status read = impl->read_special_ids(data); !read) return read.error();
    return Tokenizer{std::move(impl)};
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
    std::string repaired;
    if (utf8::valid_prefix(text) != text.size()) {
        repaired = utf8::replace_invalid(text);
        text = repaired;
    }
    const std::string origins(text.size(), special == SpecialTokens::AsText ? 'u' : 't');
    return encode_marked(text, origins);
}

std::vector<TokenId> Tokenizer::encode_marked(std::string_view text,
                                              std::string_view origins) const {
    PACE_CHECK(origins.size() == text.size(), "an origin for each byte");
    std::vector<TokenId> out;
    out.reserve(text.size() / 3 + 1);
    Bpe::Scratch scratch;
    std::size_t plain_begin = 0;
    for (std::size_t at = 0; at < text.size();) {
        AddedTokens::Match match = impl_->added.next(text, at);
        at = match.end;
        const bool found = match.begin < match.end;
        const std::string_view wrote = origins.substr(match.begin, match.end - match.begin);
        if (found && impl_->is_control(match.token) && wrote.find('u') != wrote.npos) {
            // A control token that is to be text stays in it whole: what it contains is not searched.
            if (wrote.find('t') == wrote.npos) continue;
            // Where both wrote it, the template's own part may be a token by itself.
            const std::size_t own_end = match.begin + wrote.find('u');
            const std::size_t begin = match.begin;
            match = impl_->added.next(text.substr(0, own_end), begin);
            const bool own = match.begin == begin && match.end > begin;
            at = own ? match.end : begin + 1;
            if (!own) continue;
        }
        impl_->encode_plain(text.substr(plain_begin, match.begin - plain_begin), scratch, out);
        if (found) out.push_back(match.token);
        plain_begin = match.end;
    }
    impl_->encode_plain(text.substr(plain_begin), scratch, out);
    return out;
}

std::string_view Tokenizer::bytes_of(TokenId token) const {
    PACE_CHECK(token >= 0 && token < vocab_size(), "a token of this vocabulary");
    return impl_->bytes[static_cast<std::size_t>(token)];
}

bool Tokenizer::is_control(TokenId token) const {
    PACE_CHECK(token >= 0 && token < vocab_size(), "a token of this vocabulary");
    return impl_->is_control(token);
}

int Tokenizer::vocab_size() const {
    return static_cast<int>(impl_->texts.size());
}

std::optional<TokenId> Tokenizer::find(std::string_view token_text) const {
    const TokenId token = impl_->id_of(token_text);
    if (token < 0) return std::nullopt;
    return token;
}

std::optional<TokenId> Tokenizer::prompt_bos() const {
    return impl_->prompt_bos;
}

const std::vector<TokenId>& Tokenizer::end_tokens() const {
    return impl_->end_tokens;
}

}  // namespace paceline

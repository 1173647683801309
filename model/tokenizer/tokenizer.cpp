#include "model/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/utf8.hpp"
#include "model/tokenizer/added_tokens.hpp"
#include "model/tokenizer/byte_level_encoder.hpp"
#include "model/tokenizer/piece_encoder.hpp"
#include "model/tokenizer/text_steps.hpp"
#include "model/tokenizer/vocabulary.hpp"
#include "model/weights/control_tokens.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

struct Tokenizer::Impl {
    Vocabulary vocabulary;
    std::vector<std::string> bytes;  // what each token stands for
    AddedTokens added;               // searched in the text as it is
    AddedTokens late;                // searched once the steps are done
    bool has_late = false;
    std::vector<TextStep> steps;
    std::unique_ptr<TextEncoder> encoder;
    bool drops_space = false;
    std::optional<TokenId> prompt_bos;
    std::vector<TokenId> end_tokens;

    Status read_vocabulary(const TokenizerData& data);
    Status read_encoder(const TokenizerData& data);
    void read_added(const TokenizerData& data);
    Status read_special_ids(const TokenizerData& data);
    void add_named_ends();

    template <class Plain, class Token>
    void split(const AddedTokens& tokens,
               std::string_view text,
               std::string_view origins,
               Plain on_plain,
               Token on_token) const;
    void encode_plain(std::string_view text,
                      std::string_view origins,
                      Before before,
                      std::vector<TokenId>& out) const;
};

namespace {

/// What the file says of white space beside an added token.
AddedTokens::Strip strip_of(const TokenizerData& data, TokenId token) {
    for (const GreedyToken& greedy : data.greedy_tokens) {
        if (greedy.token == token) return {greedy.before, greedy.after};
    }
    return {false, false};
}

Error unsupported(const std::string& what, const char* supported) {
    return Error{Errc::Unsupported, what + " is not supported; supported: " + supported};
}

}  // namespace

/// Names first: a model that is not known is not called damaged.
Status Tokenizer::Impl::read_vocabulary(const TokenizerData& data) {
    if (data.model == "gpt2") {
        if (!pre_tokenizer_named(data.pre))
            return unsupported("pre-tokenizer " + quoted_text(data.pre) + " (tokenizer.ggml.pre)",
                               "smollm, starcoder, refact, gpt-2, llama-bpe, dbrx, smaug-bpe, "
                               "qwen2, tekken, deepseek-coder, deepseek-llm");
    } else if (data.model != "llama" && data.model != "unigram") {
        return unsupported("tokenizer model " + quoted_text(data.model) + " (tokenizer.ggml.model)",
                           "gpt2, llama");
    }
    return vocabulary.read(data);
}

Status Tokenizer::Impl::read_encoder(const TokenizerData& data) {
    const bool byte_level = data.model == "gpt2";
    Result<std::unique_ptr<TextEncoder>> made = std::unique_ptr<TextEncoder>{};
    if (byte_level) {
        const PreTokenizer pre = pre_tokenizer_named(data.pre).value();
        if (data.normal_form_c.value_or(pre == PreTokenizer::Qwen2)) steps = {TextStep{}};
        made = make_byte_level_encoder(data, pre, vocabulary);
    } else {
        steps = data.pieces.steps;
        drops_space = data.pieces.drops_space;
        made = make_piece_encoder(data, vocabulary);
    }
    if (!made) return made.error();
    encoder = std::move(made).value();
    bytes.reserve(vocabulary.size());
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        bytes.push_back(byte_level ? byte_level_bytes(vocabulary, token)
                                   : piece_bytes(vocabulary, token));
    }
    return {};
}

void Tokenizer::Impl::read_added(const TokenizerData& data) {
    std::vector<bool> is_late(vocabulary.size(), false);
    for (const TokenId token : data.late_tokens) is_late[static_cast<std::size_t>(token)] = true;
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        if (!vocabulary.is_added(token) || vocabulary.text(token).empty()) continue;
        if (!is_late[i]) {
            added.add(vocabulary.text(token), token, strip_of(data, token));
            continue;
        }
        // It is looked for as the steps would leave it.
        MarkedText text{vocabulary.text(token), std::string(vocabulary.text(token).size(), 't')};
        apply_steps(steps, Prepends::Yes, text);
        if (text.text.empty()) continue;
        late.add(text.text, token, strip_of(data, token));
        has_late = true;
    }
}

/// Where there are tokens for the end of an answer and for a call, "<|end|>" ends a message within
/// an answer.
void Tokenizer::Impl::add_named_ends() {
    const bool ends_message =
        vocabulary.id_of("<|return|>") >= 0 && vocabulary.id_of("<|call|>") >= 0;
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        if (!vocabulary.is_control(token) || !is_end_name(vocabulary.text(token))) continue;
        if (!ends_message || vocabulary.text(token) != "<|end|>") end_tokens.push_back(token);
    }
}

Status Tokenizer::Impl::read_special_ids(const TokenizerData& data) {
    const auto is_token = [&](TokenId token) {
        return token >= 0 && static_cast<std::size_t>(token) < vocabulary.size();
    };
    const std::pair<const char*, std::optional<TokenId>> named[] = {{"bos", data.bos},
                                                                    {"eos", data.eos},
                                                                    {"eot", data.eot},
                                                                    {"eom", data.eom},
                                                                    {"unknown", data.unknown}};
    for (const auto& [name, token] : named) {
        if (token && !is_token(*token)) {
            return bad_vocabulary(
                fmt::format("tokenizer.ggml.{}_token_id is {}, the vocabulary has {} tokens", name,
                            *token, vocabulary.size()));
        }
    }
    if (data.add_bos) prompt_bos = data.bos;
    for (const TokenId token : data.end_tokens) {
        if (!is_token(token))
            return bad_vocabulary(fmt::format("token {}, which ends an answer, is none of {}",
                                              token, vocabulary.size()));
    }
    end_tokens = data.end_tokens;
    for (const auto& token : {data.eos, data.eot, data.eom}) {
        if (token) end_tokens.push_back(*token);
    }
    add_named_ends();
    std::sort(end_tokens.begin(), end_tokens.end());
    end_tokens.erase(std::unique(end_tokens.begin(), end_tokens.end()), end_tokens.end());
    return {};
}

/// Calls `on_plain` with begin and end of the text between `tokens`, in turn with `on_token`. A
/// control token that a user wrote any byte of is text.
template <class Plain, class Token>
void Tokenizer::Impl::split(const AddedTokens& tokens,
                            std::string_view text,
                            std::string_view origins,
                            Plain on_plain,
                            Token on_token) const {
    std::size_t plain_begin = 0;
    for (std::size_t at = 0; at < text.size();) {
        AddedTokens::Match match = tokens.next(text, at);
        at = match.end;
        const bool found = match.begin < match.end;
        const std::string_view wrote = origins.substr(match.begin, match.end - match.begin);
        if (found && vocabulary.is_control(match.token) && wrote.find('u') != wrote.npos) {
            const std::size_t begin = match.token_begin;
            // A control token that is to be text stays in it whole: what it contains is not
            // searched.
            if (origins.substr(0, match.token_end).find('t', begin) == origins.npos) {
                at = match.token_end;
                continue;
            }
            const std::size_t own_end = match.begin + wrote.find('u');
            if (own_end <= begin && match.begin < begin) {
                // White space is not taken together with what another wrote: the token is looked
                // for again behind that. No other begins in between, and trying each byte would be
                // quadratic.
                at = own_end < begin ? origins.rfind('u', begin - 1) + 1 : begin;
                continue;
            }
            // Where both wrote it, the template's own part may be a token by itself.
            match = tokens.next(text.substr(0, own_end), match.begin);
            const bool own = match.token_begin == begin && match.end > begin;
            at = own ? match.end : begin + 1;
            if (!own) continue;
        }
        if (plain_begin < match.begin) on_plain(plain_begin, match.begin);
        if (found) on_token(match.token);
        plain_begin = match.end;
    }
    if (plain_begin < text.size()) on_plain(plain_begin, text.size());
}

/// Encodes text between the tokens of `added`; it is valid UTF-8.
void Tokenizer::Impl::encode_plain(std::string_view text,
                                   std::string_view origins,
                                   Before before,
                                   std::vector<TokenId>& out) const {
    MarkedText marked;
    if (!steps.empty()) {
        marked = {std::string{text}, std::string{origins}};
        apply_steps(steps, before == Before::Text ? Prepends::No : Prepends::Yes, marked);
        text = marked.text;
        origins = marked.origins;
    }
    if (!has_late) return encoder->encode(text, before, out);
    split(
        late, text, origins,
        [&](std::size_t begin, std::size_t end) {
            encoder->encode(text.substr(begin, end - begin), before, out);
        },
        [&](TokenId token) {
            out.push_back(token);
            before = Before::AddedToken;
        });
}

Result<Tokenizer> Tokenizer::make(const TokenizerData& data) {
    if (!data.refusal.empty()) return Error{Errc::Unsupported, data.refusal};
    auto impl = std::make_unique<Impl>();
    if (Status read = impl->read_vocabulary(data); !read) return read.error();
    if (Status read = impl->read_special_ids(data); !read) return read.error();
    if (Status read = impl->read_encoder(data); !read) return read.error();
    impl->read_added(data);
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
                                              std::string_view origins,
                                              std::optional<TokenId> after) const {
    PACE_CHECK(origins.size() == text.size(), "an origin for each byte");
    std::vector<TokenId> out;
    out.reserve(text.size() / 3 + 1);
    Before before = Before::Nothing;
    if (after) before = impl_->vocabulary.is_added(*after) ? Before::AddedToken : Before::Text;
    impl_->split(
        impl_->added, text, origins,
        [&](std::size_t begin, std::size_t end) {
            impl_->encode_plain(text.substr(begin, end - begin), origins.substr(begin, end - begin),
                                before, out);
        },
        [&](TokenId token) {
            out.push_back(token);
            before = Before::AddedToken;
        });
    return out;
}

bool Tokenizer::hides_space_after(std::optional<TokenId> after) const {
    return impl_->drops_space && (!after || impl_->vocabulary.is_added(*after));
}

std::string_view Tokenizer::bytes_of(TokenId token) const {
    PACE_CHECK(token >= 0 && token < vocab_size(), "a token of this vocabulary");
    return impl_->bytes[static_cast<std::size_t>(token)];
}

bool Tokenizer::is_control(TokenId token) const {
    PACE_CHECK(token >= 0 && token < vocab_size(), "a token of this vocabulary");
    return impl_->vocabulary.is_control(token);
}

int Tokenizer::vocab_size() const {
    return static_cast<int>(impl_->vocabulary.size());
}

std::optional<TokenId> Tokenizer::find(std::string_view token_text) const {
    const TokenId token = impl_->vocabulary.id_of(token_text);
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

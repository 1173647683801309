#include "model/weights/gguf/gguf_tokenizer.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <limits>
#include <string>
#include <utility>

#include "model/weights/control_tokens.hpp"
#include "model/weights/gguf/gguf_model_keys.hpp"
#include "model/weights/gguf/gguf_piece_keys.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

std::vector<std::string> owned(const std::vector<std::string_view>& views) {
    return {views.begin(), views.end()};
}

void read_tokens(GgufKeys& keys, int vocab_size, TokenizerData& data) {
    const std::vector<std::string_view> tokens = keys.texts("tokenizer.ggml.tokens");
    if (tokens.size() != static_cast<std::size_t>(vocab_size)) {
        keys.fail(Errc::BadFile,
                  fmt::format("tokenizer.ggml.tokens has {} entries, the embedding has {} rows",
                              tokens.size(), vocab_size));
        return;
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i].size() > kTokenBytesMax) {
            keys.fail(Errc::BadFile, fmt::format("token {} has {} bytes; the limit is {}", i,
                                                 tokens[i].size(), kTokenBytesMax));
            return;
        }
    }
    data.tokens = owned(tokens);
}

void read_kinds(GgufKeys& keys, TokenizerData& data) {
    const std::vector<std::int64_t> kinds = keys.ints("tokenizer.ggml.token_type");
    if (kinds.empty()) {
        // A SentencePiece vocabulary needs them, and is refused when text is to be encoded.
        if (data.model == "gpt2") data.kinds.assign(data.tokens.size(), TokenKind::Normal);
        return;
    }
    if (kinds.size() != data.tokens.size()) {
        keys.fail(Errc::BadFile,
                  fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens",
                              kinds.size(), data.tokens.size()));
        return;
    }
    data.kinds.reserve(kinds.size());
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        if (kinds[i] < static_cast<std::int64_t>(TokenKind::Normal) ||
            kinds[i] > static_cast<std::int64_t>(TokenKind::Byte)) {
            keys.fail(Errc::BadFile,
                      fmt::format("tokenizer.ggml.token_type of token {} is {}; known are 1 to 6",
                                  i, kinds[i]));
            return;
        }
        data.kinds.push_back(static_cast<TokenKind>(kinds[i]));
    }
}

/// Whether a text begins with a BOS in a file that does not say: the families of llama.cpp.
bool begins_with_bos(const TokenizerData& data) {
    if (data.model == "llama") return true;
    if (data.model != "gpt2") return false;
    for (const char* pre : {"llama-bpe", "llama3", "llama-v3", "tekken"}) {
        if (data.pre == pre) return true;
    }
    return false;
}

/// The special tokens by their keys. An id that no token has (converters write -1 for none) is no
/// error: nothing needs the token, unless texts begin with it.
void read_special_ids(GgufKeys& keys, TokenizerData& data, std::vector<std::string>& remarks) {
    const std::pair<const char*, std::optional<TokenId> TokenizerData::*> named[] = {
        {"bos", &TokenizerData::bos},         {"eos", &TokenizerData::eos},
        {"eot", &TokenizerData::eot},         {"eom", &TokenizerData::eom},
        {"unknown", &TokenizerData::unknown}, {"padding", &TokenizerData::padding}};
    constexpr GgufKeys::IntRange kAny{std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::int64_t>::max()};
    const bool adds_bos = keys.bool_or("tokenizer.ggml.add_bos_token", begins_with_bos(data));
    for (const auto& [name, place] : named) {
        const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
        const auto id = keys.find_int(key, kAny);
        if (!id) continue;
        if (*id >= 0 && *id < static_cast<std::int64_t>(data.tokens.size())) {
            data.*place = static_cast<TokenId>(*id);
            continue;
        }
        const std::string what =
            fmt::format("{} is {}, which is none of the {} tokens", key, *id, data.tokens.size());
        if (place == &TokenizerData::bos && adds_bos) {
            keys.fail(Errc::BadFile,
                      what +
                          ", and every text begins with it (tokenizer.ggml.add_bos_token, or "
                          "what the vocabulary's family does without that key)");
        }
        remarks.push_back(what + "; it is ignored");
    }
}

/// Makes control tokens of those that a key names as begin or end of a text.
void make_ends_control(TokenizerData& data, std::vector<TokenId>& changed) {
    std::vector<TokenId> named = data.end_tokens;
    for (const auto& token : {data.bos, data.eos, data.eot, data.eom}) {
        if (token) named.push_back(*token);
    }
    for (const TokenId token : named) {
        if (make_control(data, token)) changed.push_back(token);
    }
}

std::vector<TokenId> read_ids(GgufKeys& keys, const char* name, int vocab_size) {
    std::vector<TokenId> tokens;
    for (const std::int64_t id : keys.ints(name)) {
        if (id < 0 || id >= vocab_size) {
            keys.fail(Errc::BadFile, fmt::format("{} has the id {}, the model has {} tokens", name,
                                                 id, vocab_size));
            return {};
        }
        tokens.push_back(static_cast<TokenId>(id));
    }
    return tokens;
}

/// What converters of GGUF files leave out, and Paceline's own writes (gguf_model_keys.hpp).
void read_own_keys(GgufKeys& keys, int vocab_size, TokenizerData& data) {
    data.end_tokens = read_ids(keys, kEndTokensKey, vocab_size);
    for (const TokenId token : read_ids(keys, kStripLeftKey, vocab_size))
        data.greedy_tokens.push_back({token, true, false});
    for (const TokenId token : read_ids(keys, kStripRightKey, vocab_size)) {
        const auto known =
            std::find_if(data.greedy_tokens.begin(), data.greedy_tokens.end(),
                         [&](const GreedyToken& greedy) { return greedy.token == token; });
        if (known == data.greedy_tokens.end()) {
            data.greedy_tokens.push_back({token, false, true});
        } else {
            known->after = true;
        }
    }
    data.late_tokens = read_ids(keys, kLateTokensKey, vocab_size);
    if (keys.has(kWholeWordsKey)) data.whole_words = keys.bool_or(kWholeWordsKey, false);
    if (keys.has(kNormalFormKey)) data.normal_form_c = keys.bool_or(kNormalFormKey, false);
}

}  // namespace

Result<ChatSources> read_chat_sources(GgufKeys& keys) {
    constexpr std::size_t kTemplatesMax = 64;
    ChatSources sources;
    const std::vector<std::string_view> names = keys.texts("tokenizer.chat_templates");
    if (names.size() > kTemplatesMax) {
        keys.fail(Errc::BadFile,
                  fmt::format("tokenizer.chat_templates has {} entries; the limit is {}",
                              names.size(), kTemplatesMax));
    }
    for (const std::string_view name : names) {
        if (!keys.status()) return keys.status().error();
        const std::string key = sources.place + "." + std::string{name};
        sources.more.emplace_back(name, keys.text_or(key, ""));
    }
    if (!keys.status()) return keys.status().error();
    return sources;
}

Result<TokenizerData> read_tokenizer(GgufKeys& keys,
                                     int vocab_size,
                                     std::vector<std::string>& remarks) {
    TokenizerData data;
    if (!keys.has("tokenizer.ggml.tokens")) return data;
    data.model = std::string(keys.text_or("tokenizer.ggml.model", ""));
    data.pre = std::string(keys.text_or("tokenizer.ggml.pre", ""));
    read_tokens(keys, vocab_size, data);
    read_kinds(keys, data);
    data.merges = owned(keys.texts("tokenizer.ggml.merges"));
    read_special_ids(keys, data, remarks);
    // Before spaces are put into the texts of the user's tokens.
    std::vector<TokenId> changed = make_names_control(data);
    // Before it is read: a file that says so itself is none of Paceline's.
    const bool unigram = data.model == "unigram";
    if (!unigram) read_piece_keys(keys, data);
    if (unigram || (data.model != "gpt2" && !has_pieces(data))) {
        data.refusal = "tokenizer model " + quoted_text(data.model) +
                       " (tokenizer.ggml.model) is not supported; supported: gpt2, llama, and "
                       "t5 as paceline convert writes it";
    }
    data.add_bos = keys.bool_or("tokenizer.ggml.add_bos_token", begins_with_bos(data));
    data.add_eos = keys.bool_or("tokenizer.ggml.add_eos_token", false);
    data.chat_template = std::string(keys.text_or("tokenizer.chat_template", ""));
    read_own_keys(keys, vocab_size, data);
    if (!keys.status()) return keys.status().error();
    make_ends_control(data, changed);
    if (!changed.empty()) remarks.push_back(control_remark(data, changed));
    return data;
}

}  // namespace paceline

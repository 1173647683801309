#include "model/weights/huggingface/folder_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/weights/huggingface/json_file.hpp"
#include "model/weights/huggingface/token_pipeline.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

constexpr std::size_t kTokenBytesMax = 65536;  // as of GGUF files

/// Why the model of the tokenizer is none that is supported; empty: it is byte-level BPE.
std::string refusal_of_model(JsonKeys& model) {
    const std::string type = model.find_text("type").value_or("BPE");
    const auto no = [](const std::string& what) {
        return "tokenizer.json: " + what + " is not supported";
    };
    if (type != "BPE") return no("the model " + paceline::quoted(type));
    if (model.bool_or("byte_fallback", false))
        return no("a SentencePiece vocabulary (model.byte_fallback)");
    if (model.number_or("dropout", 0.0, {0, 1}) != 0.0) return no("model.dropout");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (!model.find_text(key).value_or("").empty()) return no("model." + std::string{key});
    }
    return {};
}

/// Reads one document; what it has read before is what the next step may trust.
class Reader {
public:
    Reader(JsonKeys& keys, int vocab_size) : keys_{keys}, vocab_size_{vocab_size} {}

    void read_vocabulary(JsonKeys& model);
    void read_merges(JsonKeys& model);
    void read_added();
    TokenizerData take() { return std::move(data_); }
    TokenizerData& data() { return data_; }

private:
    bool put(const std::string& text, std::int64_t id, const std::string& where);
    [[nodiscard]] bool knows(const std::string& text) const { return ids_.contains(text); }
    void read_merge(const json& merge, std::size_t rank);
    void read_added_token(JsonKeys token, std::size_t place);

    JsonKeys& keys_;
    int vocab_size_;
    TokenizerData data_;
    std::unordered_map<std::string, TokenId> ids_;
    std::vector<bool> taken_;
};

bool Reader::put(const std::string& text, std::int64_t id, const std::string& where) {
    if (id < 0 || id >= vocab_size_) {
        keys_.fail(Errc::BadFile, fmt::format("{} has the id {}, the model has {} tokens", where,
                                              id, vocab_size_));
        return false;
    }
    const auto place = static_cast<std::size_t>(id);
    if (text.size() > kTokenBytesMax) {
        keys_.fail(Errc::BadFile, fmt::format("{} has {} bytes; the limit is {}", where,
                                              text.size(), kTokenBytesMax));
        return false;
    }
    if (taken_[place]) {
        keys_.fail(Errc::BadFile, fmt::format("{} has the id {}, and so has {}", where, id,
                                              paceline::quoted(data_.tokens[place])));
        return false;
    }
    taken_[place] = true;
    data_.tokens[place] = text;
    data_.kinds[place] = TokenKind::Normal;
    ids_.emplace(text, static_cast<TokenId>(id));
    return true;
}

void Reader::read_vocabulary(JsonKeys& model) {
    const auto size = static_cast<std::size_t>(vocab_size_);
    data_.tokens.resize(size);
    data_.kinds.assign(size, TokenKind::Unused);
    taken_.assign(size, false);
    const json* vocabulary = model.find("vocab");
    if (vocabulary == nullptr || !vocabulary->is_object() || vocabulary->empty()) {
        keys_.fail(Errc::BadFile, "model.vocab is missing, empty or no object");
        return;
    }
    ids_.reserve(vocabulary->size());
    for (const auto& [text, id] : vocabulary->items()) {
        const std::string where = "token " + paceline::quoted(text) + " of model.vocab";
        if (!id.is_number_integer()) {
            keys_.fail(Errc::BadFile, where + " has the id " + json_text_of(id));
            return;
        }
        // A huge unsigned id becomes negative, and is refused as that.
        if (!put(text, id.get<std::int64_t>(), where)) return;
    }
}

void Reader::read_merge(const json& merge, std::size_t rank) {
    const auto bad = [&](const char* why) {
        keys_.fail(Errc::BadFile,
                   fmt::format("model.merges[{}] is {}: {}", rank, json_text_of(merge), why));
    };
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        const std::size_t space = std::min(text.find(' '), text.size());
        left = text.substr(0, space);
        right = text.substr(std::min(space + 1, text.size()));
    }
    if (left.empty() || right.empty() || left.find(' ') != left.npos ||
        right.find(' ') != right.npos)
        return bad("not two tokens of a byte-level vocabulary");
    if (!knows(left) || !knows(right) || !knows(left + right))
        return bad("the vocabulary lacks a part of it or the whole");
    data_.merges.push_back(left + " " + right);
}

void Reader::read_merges(JsonKeys& model) {
    const json* merges = model.find("merges");
    if (merges == nullptr || !merges->is_array() || merges->empty()) {
        keys_.fail(Errc::BadFile, "model.merges is missing, empty or no list");
        return;
    }
    data_.merges.reserve(merges->size());
    for (std::size_t rank = 0; rank < merges->size() && keys_.status().ok(); ++rank)
        read_merge((*merges)[rank], rank);
}

void Reader::read_added_token(JsonKeys token, std::size_t place) {
    const std::string where = fmt::format("added_tokens[{}]", place);
    const auto id = token.find_int("id", {0, INT32_MAX});
    const auto text = token.find_text("content");
    if (!id || !text || text->empty()) {
        token.fail(Errc::BadFile, where + " has no id or no content");
        return;
    }
    const auto known = ids_.find(*text);
    if (known == ids_.end()) {
        if (!put(*text, *id, where)) return;
    } else if (known->second != *id) {
        token.fail(Errc::BadFile,
                   fmt::format("{} is {} with the id {}, which model.vocab has as {}", where,
                               paceline::quoted(*text), *id, known->second));
        return;
    }
    const auto token_id = static_cast<TokenId>(*id);
    const bool special = token.bool_or("special", false);
    data_.kinds[static_cast<std::size_t>(*id)] = special ? TokenKind::Control : TokenKind::User;
    if (token.bool_or("single_word", false)) {
        data_.refusal = "tokenizer.json: " + where + ".single_word, which " +
                        paceline::quoted(*text) + " has, is not supported";
    }
    const GreedyToken greedy{token_id, token.bool_or("lstrip", false),
                             token.bool_or("rstrip", false)};
    if (greedy.before || greedy.after) data_.greedy_tokens.push_back(greedy);
}

void Reader::read_added() {
    const json* added = keys_.find("added_tokens");
    if (added == nullptr) return;
    if (!added->is_array()) {
        keys_.fail(Errc::BadFile,
                   "added_tokens is " + json_text_of(*added) + "; it must be a list");
        return;
    }
    for (std::size_t i = 0; i < added->size() && keys_.status().ok(); ++i) {
        if (!(*added)[i].is_object()) {
            keys_.fail(Errc::BadFile, fmt::format("added_tokens[{}] is no object", i));
            return;
        }
        read_added_token(keys_.inner((*added)[i], fmt::format("added_tokens[{}].", i)), i);
    }
}

FolderTokenizer refused(std::string why) {
    FolderTokenizer none;
    none.data.model = none.data.pre = "none";
    none.data.refusal = std::move(why);
    return none;
}

/// The text of tokenizer_config's bos_token and its like, which may be an object around it.
std::optional<std::string> token_text(JsonKeys& keys, const char* key) {
    const json* value = keys.find(key);
    if (value != nullptr && value->is_object()) return keys.child(key).find_text("content");
    return keys.find_text(key);
}

}  // namespace

Result<FolderTokenizer> read_tokenizer(std::string_view text,
                                       const std::string& file,
                                       int vocab_size) {
    const Result<json> root = parse_json_object(text, file);
    if (!root) return root.error();
    Status status;
    JsonKeys keys(root.value(), file, status);
    JsonKeys model = keys.child("model");
    const std::string refusal = refusal_of_model(model);
    if (!status) return status.error();
    if (!refusal.empty()) return refused(refusal);
    TokenPipeline pipeline = recognise_pipeline(root.value());
    if (!pipeline.refusal.empty()) return refused(std::move(pipeline.refusal));

    Reader reader(keys, vocab_size);
    TokenizerData& data = reader.data();
    data.model = "gpt2";  // GGUF's word for byte-level BPE
    data.pre = pipeline.pre;
    data.normal_form_c = pipeline.normal_form_c;
    data.whole_words = model.bool_or("ignore_merges", false);
    reader.read_vocabulary(model);
    if (status) reader.read_merges(model);
    if (status) reader.read_added();
    if (!status) return status.error();
    for (std::size_t i = 0; i < data.tokens.size(); ++i) {
        if (data.kinds[i] == TokenKind::Unused) data.tokens[i] = fmt::format("[PAD{}]", i);
    }
    for (const TokenId token : pipeline.prefix) {
        if (token < vocab_size) continue;
        return Error{Errc::BadFile,
                     fmt::format("{}: post_processor names token {}, the model has {}", file, token,
                                 vocab_size)};
    }
    data.add_bos = !pipeline.prefix.empty();
    if (data.add_bos) data.bos = pipeline.prefix.front();
    data.add_eos = pipeline.suffix;
    return FolderTokenizer{reader.take(), pipeline.has_post_processor};
}

void add_tokenizer_config(JsonKeys& keys, FolderTokenizer& tokenizer) {
    TokenizerData& data = tokenizer.data;
    const std::pair<const char*, std::optional<TokenId> TokenizerData::*> named[] = {
        {"bos_token", &TokenizerData::bos},
        {"eos_token", &TokenizerData::eos},
        {"unk_token", &TokenizerData::unknown},
        {"pad_token", &TokenizerData::padding}};
    for (const auto& [key, place] : named) {
        const std::optional<std::string> text = token_text(keys, key);
        if (!text) continue;
        const auto found = std::find(data.tokens.begin(), data.tokens.end(), *text);
        if (found != data.tokens.end() && (place != &TokenizerData::bos || !data.add_bos))
            data.*place = static_cast<TokenId>(found - data.tokens.begin());
    }
    const bool begins = keys.bool_or("add_bos_token", false);
    const bool ends = keys.bool_or("add_eos_token", false);
    if (tokenizer.has_post_processor) return;
    data.add_bos = begins && data.bos.has_value();
    data.add_eos = ends && data.eos.has_value();
}

void add_end_tokens(JsonKeys& keys, int vocab_size, TokenizerData& data) {
    const json* value = keys.find("eos_token_id");
    if (value == nullptr) return;
    const json one = json::array({*value});
    for (const json& id : value->is_array() ? *value : one) {
        if (!id.is_number_unsigned() ||
            id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab_size)) {
            keys.fail(Errc::BadFile, fmt::format("eos_token_id {} is no token; the model has {}",
                                                 json_text_of(id), vocab_size));
            return;
        }
        data.end_tokens.push_back(id.get<TokenId>());
    }
}

}  // namespace paceline::huggingface

#include "model/weights/huggingface/folder_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/weights/control_tokens.hpp"
#include "model/weights/huggingface/json_file.hpp"
#include "model/weights/huggingface/token_pipeline.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

constexpr std::size_t kTokenBytesMax = 65536;  // as of GGUF files

/// Why the model of the tokenizer is none that is supported; empty: it is BPE or Unigram.
std::string refusal_of_model(JsonKeys& model, const std::string& type) {
    const auto no = [](const std::string& what) {
        return "tokenizer.json: " + what + " is not supported";
    };
    if (type != "BPE" && type != "Unigram") return no("the model " + paceline::quoted_text(type));
    if (model.number_or("dropout", 0.0, {0, 1}) != 0.0) return no("model.dropout");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (!model.find_text(key).value_or("").empty()) return no("model." + std::string{key});
    }
    return {};
}

/// The same of model and pipeline together.
std::string refusal_of_both(JsonKeys& model, const std::string& type, bool byte_level) {
    if (!byte_level) return {};
    if (type != "BPE")
        return "tokenizer.json: the model \"" + type + "\" with ByteLevel is not supported";
    if (model.bool_or("byte_fallback", false))
        return "tokenizer.json: model.byte_fallback with ByteLevel is not supported";
    return {};
}

/// Reads one document; what it has read before is what the next step may trust.
class Reader {
public:
    Reader(JsonKeys& keys, int vocab_size) : keys_{keys}, vocab_size_{vocab_size} {}

    /// Byte-level BPE.
    void read_byte_level(JsonKeys& model);
    /// SentencePiece: BPE of characters, or Unigram.
    void read_pieces(JsonKeys& model, const std::string& type, const PiecePipeline& pieces);
    TokenizerData take() { return std::move(data_); }
    std::vector<std::string> take_left_out() { return std::move(left_out_); }
    TokenizerData& data() { return data_; }

private:
    void read_vocabulary(JsonKeys& model);
    void read_scored_vocabulary(JsonKeys& model);
    void read_merges(JsonKeys& model);
    void read_unknown(JsonKeys& model);
    /// "<0x0A>" and its like stand for bytes.
    void name_bytes();
    void read_added();
    void make_room();
    bool put(const std::string& text, std::int64_t id, const std::string& where);
    [[nodiscard]] bool knows(const std::string& text) const { return ids_.contains(text); }
    void read_merge(const json& merge, std::size_t rank);
    void read_added_token(JsonKeys token, std::size_t place);

    JsonKeys& keys_;
    int vocab_size_;
    TokenizerData data_;
    std::vector<std::string> left_out_;  // FolderTokenizer::left_out
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
                                              paceline::quoted_text(data_.tokens[place])));
        return false;
    }
    taken_[place] = true;
    data_.tokens[place] = text;
    data_.kinds[place] = TokenKind::Normal;
    ids_.emplace(text, static_cast<TokenId>(id));
    return true;
}

void Reader::make_room() {
    const auto size = static_cast<std::size_t>(vocab_size_);
    data_.tokens.resize(size);
    data_.kinds.assign(size, TokenKind::Unused);
    taken_.assign(size, false);
}

void Reader::read_vocabulary(JsonKeys& model) {
    make_room();
    const json* vocabulary = model.find("vocab");
    if (vocabulary == nullptr || !vocabulary->is_object() || vocabulary->empty()) {
        keys_.fail(Errc::BadFile, "model.vocab is missing, empty or no object");
        return;
    }
    ids_.reserve(vocabulary->size());
    for (const auto& [text, id] : vocabulary->items()) {
        const std::string where = "token " + paceline::quoted_text(text) + " of model.vocab";
        if (!id.is_number_integer()) {
            keys_.fail(Errc::BadFile, where + " has the id " + json_text_of(id));
            return;
        }
        // A huge unsigned id becomes negative, and is refused as that.
        if (!put(text, id.get<std::int64_t>(), where)) return;
    }
}

/// Of Unigram: a list of texts and scores, by id.
void Reader::read_scored_vocabulary(JsonKeys& model) {
    make_room();
    // What the list lacks is only cut out as a whole.
    data_.scores.assign(data_.tokens.size(), -std::numeric_limits<double>::infinity());
    const json* vocabulary = model.find("vocab");
    if (vocabulary == nullptr || !vocabulary->is_array() || vocabulary->empty()) {
        keys_.fail(Errc::BadFile, "model.vocab is missing, empty or no list");
        return;
    }
    for (std::size_t i = 0; i < vocabulary->size(); ++i) {
        const json& entry = (*vocabulary)[i];
        const std::string where = fmt::format("model.vocab[{}]", i);
        if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() ||
            !entry[1].is_number() || !std::isfinite(entry[1].get<double>())) {
            keys_.fail(Errc::BadFile,
                       where + " is " + json_text_of(entry) + "; it must be a text and a score");
            return;
        }
        const auto text = entry[0].get<std::string>();
        if (knows(text)) {
            keys_.fail(Errc::BadFile, fmt::format("{} is {}, and so is model.vocab[{}]", where,
                                                  paceline::quoted_text(text), ids_.at(text)));
            return;
        }
        if (!put(text, static_cast<std::int64_t>(i), where)) return;
        data_.scores[i] = entry[1].get<double>();
    }
}

/// The token of what the vocabulary lacks: Unigram names its id, BPE its text.
void Reader::read_unknown(JsonKeys& model) {
    if (data_.model == "unigram") {
        const auto id = model.find_int("unk_id", {0, vocab_size_ - 1});
        if (id) data_.unknown = static_cast<TokenId>(*id);
        return;
    }
    const std::optional<std::string> text = model.find_text("unk_token");
    if (!text) return;
    const auto known = ids_.find(*text);
    if (known == ids_.end()) {
        keys_.fail(Errc::BadFile,
                   "model.unk_token " + paceline::quoted_text(*text) + " is none of model.vocab");
        return;
    }
    data_.unknown = known->second;
}

void Reader::name_bytes() {
    for (std::size_t i = 0; i < data_.tokens.size(); ++i) {
        const std::string& text = data_.tokens[i];
        const auto is_hex = [&](std::size_t at) {
            return std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
        };
        if (data_.kinds[i] == TokenKind::Normal && text.size() == 6 && text.starts_with("<0x") &&
            text[5] == '>' && is_hex(3) && is_hex(4))
            data_.kinds[i] = TokenKind::Byte;
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
        return bad("not two tokens without spaces");
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
    if (!id || !text) {
        token.fail(Errc::BadFile, where + " has no id or no content");
        return;
    }
    if (text->empty()) return;
    const auto known = ids_.find(*text);
    if (known == ids_.end() && *id >= vocab_size_) {
        left_out_.push_back(*text);
        return;
    }
    if (known == ids_.end()) {
        if (!put(*text, *id, where)) return;
    } else if (known->second != *id) {
        token.fail(Errc::BadFile,
                   fmt::format("{} is {} with the id {}, which model.vocab has as {}", where,
                               paceline::quoted_text(*text), *id, known->second));
        return;
    }
    const auto token_id = static_cast<TokenId>(*id);
    const bool special = token.bool_or("special", false);
    data_.kinds[static_cast<std::size_t>(*id)] = special ? TokenKind::Control : TokenKind::User;
    if (token.bool_or("single_word", false)) {
        data_.refusal = "tokenizer.json: " + where + ".single_word, which " +
                        paceline::quoted_text(*text) + " has, is not supported";
    }
    // Absent: only those that are not special.
    if (token.bool_or("normalized", !special)) data_.late_tokens.push_back(token_id);
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

void Reader::read_byte_level(JsonKeys& model) {
    data_.model = "gpt2";  // GGUF's word for byte-level BPE
    read_vocabulary(model);
    if (keys_.status()) read_merges(model);
    if (keys_.status()) read_added();
}

void Reader::read_pieces(JsonKeys& model, const std::string& type, const PiecePipeline& pieces) {
    data_.model = type == "Unigram" ? "unigram" : "llama";  // the second is GGUF's word
    data_.pieces = pieces.rules;
    data_.pieces.byte_fallback = model.bool_or("byte_fallback", false);
    data_.pieces.fuse_unknown = type == "Unigram" || model.bool_or("fuse_unk", false);
    if (type == "Unigram") {
        read_scored_vocabulary(model);
    } else {
        read_vocabulary(model);
        if (keys_.status()) read_merges(model);
    }
    if (keys_.status()) read_unknown(model);
    if (keys_.status()) read_added();
    if (pieces.decodes_bytes) name_bytes();
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
    const std::string type = model.find_text("type").value_or("BPE");
    std::string refusal = refusal_of_model(model, type);
    if (!status) return status.error();
    if (!refusal.empty()) return refused(std::move(refusal));
    TokenPipeline pipeline = recognise_pipeline(root.value());
    if (!pipeline.refusal.empty()) return refused(std::move(pipeline.refusal));
    refusal = refusal_of_both(model, type, pipeline.byte_level);
    if (!status) return status.error();
    if (!refusal.empty()) return refused(std::move(refusal));

    Reader reader(keys, vocab_size);
    reader.data().pre = pipeline.pre;
    reader.data().normal_form_c = pipeline.normal_form_c;
    reader.data().whole_words = model.bool_or("ignore_merges", false);
    if (pipeline.byte_level) {
        reader.read_byte_level(model);
    } else {
        reader.read_pieces(model, type, pipeline.pieces);
    }
    if (!status) return status.error();
    TokenizerData& data = reader.data();
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
    if (data.bos) make_control(data, *data.bos);
    data.add_eos = pipeline.suffix;
    std::vector<TokenId> changed = make_names_control(data);
    return FolderTokenizer{reader.take(), pipeline.has_post_processor, std::move(changed),
                           reader.take_left_out()};
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
        // What becomes of unknown characters the model says alone: without an unknown token they
        // vanish.
        if (place == &TokenizerData::unknown && (data.unknown || data.model != "gpt2")) continue;
        if (found != data.tokens.end() && (place != &TokenizerData::bos || !data.add_bos))
            data.*place = static_cast<TokenId>(found - data.tokens.begin());
    }
    // Whether added_tokens has them or not: text of a user never becomes them.
    if (data.bos) make_control(data, *data.bos);
    if (data.eos) make_control(data, *data.eos);
    const bool begins = keys.bool_or("add_bos_token", false);
    const bool ends = keys.bool_or("add_eos_token", false);
    if (tokenizer.has_post_processor) return;
    data.add_bos = begins && data.bos.has_value();
    data.add_eos = ends && data.eos.has_value();
}

void add_end_tokens(JsonKeys& keys,
                    int vocab_size,
                    TokenizerData& data,
                    std::vector<std::string>& remarks) {
    const json* value = keys.find("eos_token_id");
    if (value == nullptr) return;
    const json one = json::array({*value});
    for (const json& id : value->is_array() ? *value : one) {
        if (id.is_null()) continue;
        const std::string what = fmt::format("eos_token_id {} is no token; the model has {}",
                                             json_text_of(id), vocab_size);
        if (!id.is_number_integer()) return keys.fail(Errc::BadFile, what);
        if (!id.is_number_unsigned() ||
            id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab_size)) {
            remarks.push_back(what + "; it is ignored (" + keys.file() + ")");
            continue;
        }
        data.end_tokens.push_back(id.get<TokenId>());
        make_control(data, id.get<TokenId>());
    }
}

}  // namespace paceline::huggingface

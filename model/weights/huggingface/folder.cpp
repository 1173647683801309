#include "model/weights/huggingface/folder.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/weights/control_tokens.hpp"
#include "model/weights/fingerprint.hpp"
#include "model/weights/huggingface/folder_config.hpp"
#include "model/weights/huggingface/folder_template.hpp"
#include "model/weights/huggingface/folder_tensors.hpp"
#include "model/weights/huggingface/folder_tokenizer.hpp"
#include "model/weights/huggingface/generation_config.hpp"
#include "model/weights/huggingface/json_file.hpp"
#include "model/weights/huggingface/shards.hpp"
#include "model/weights/huggingface/stored_order.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

/// A JSON file of the folder: its text, its document, and the keys of it.
struct Document {
    std::string file;
    std::string text;
    json root = json::object();
    bool there = false;
};

Result<Document> read_document(const std::string& folder, const char* name) {
    Document document;
    document.file = folder + "/" + name;
    Result<std::optional<std::string>> text = read_text_file(document.file, kSmallJsonBytesMax);
    if (!text) return text.error();
    if (!text.value()) return document;
    document.there = true;
    document.text = *std::move(text).value();
    Result<json> root = parse_json_object(document.text, document.file);
    if (!root) return root.error();
    document.root = std::move(root).value();
    return document;
}

/// Why there is no tokenizer.json, as far as other files tell.
std::string no_tokenizer(const std::string& folder) {
    if (MappedFile::exists(folder + "/tokenizer.model"))
        return "a SentencePiece tokenizer (tokenizer.model without tokenizer.json) is not "
               "supported; transformers writes one with "
               "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)";
    if (MappedFile::exists(folder + "/vocab.json"))
        return "vocab.json without tokenizer.json is not supported; transformers writes one with "
               "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)";
    return "the folder has no tokenizer.json";
}

/// What the fingerprint is made of: text that is not the same for two models. What only concerns
/// the conversation (template, sampling, end tokens) is left out: trained parts fit whatever it
/// says.
class Identity {
public:
    void add(const char* what, std::span<const std::byte> bytes) {
        text_ +=
            fmt::format("{} {} {}\n", what, bytes.size(), fingerprint_text(fingerprint_of(bytes)));
    }
    void add(const char* what, std::string_view text) {
        add(what, std::as_bytes(std::span{text.data(), text.size()}));
    }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    std::string text_ = "Hugging Face folder\n";
};

Result<FolderTokenizer> read_tokenizer_file(const std::string& folder,
                                            int vocab_size,
                                            Identity& identity) {
    const std::string file = folder + "/tokenizer.json";
    const Result<std::optional<std::string>> text = read_text_file(file, kLargeJsonBytesMax);
    if (!text) return text.error();
    if (text.value()) {
        identity.add("tokenizer.json", *text.value());
        return read_tokenizer(*text.value(), file, vocab_size);
    }
    FolderTokenizer none;
    none.data.model = none.data.pre = "none";
    none.data.refusal = no_tokenizer(folder);
    return none;
}

/// Says which added tokens the model has no row for. No text becomes one, which changes nothing,
/// unless a chat template has it.
Status say_left_out(const std::vector<std::string>& tokens,
                    const std::string& folder,
                    ModelParts& parts) {
    if (tokens.empty()) return {};
    const auto beyond = [&](const std::string& shown) {
        return fmt::format(
            "added_tokens of tokenizer.json has {} with an id beyond the {} tokens "
            "of the model (vocab_size)",
            shown, parts.config.vocab_size);
    };
    const auto is_written = [&parts](const std::string& token) {
        const auto has = [&](std::string_view text) { return text.find(token) != text.npos; };
        return has(parts.tokenizer.chat_template) ||
               std::any_of(parts.chat.more.begin(), parts.chat.more.end(),
                           [&](const auto& more) { return has(more.second); });
    };
    for (const std::string& token : tokens) {
        if (!is_written(token)) continue;
        return Error{Errc::BadFile, folder + ": " + beyond(paceline::quoted_text(token)) +
                                        ", and the chat template writes it"};
    }
    const std::string more =
        tokens.size() > 1 ? fmt::format(" and {} more", tokens.size() - 1) : "";
    parts.remarks.push_back(beyond(paceline::quoted_text(tokens.front()) + more) +
                            ": no text becomes it");
    return {};
}

/// Tokenizer, its special tokens, template and sampling.
Status read_text_parts(const std::string& folder,
                       const Document& config,
                       Identity& identity,
                       ModelParts& parts) {
    const int vocab_size = parts.config.vocab_size;
    Result<FolderTokenizer> tokenizer = read_tokenizer_file(folder, vocab_size, identity);
    if (!tokenizer) return tokenizer.error();

    const Result<Document> special = read_document(folder, "tokenizer_config.json");
    if (!special) return special.error();
    Status status;
    JsonKeys special_keys(special.value().root, special.value().file, status);
    add_tokenizer_config(special_keys, tokenizer.value());
    if (!status) return status;
    parts.tokenizer = std::move(tokenizer.value().data);
    if (const std::vector<TokenId>& changed = tokenizer.value().changed; !changed.empty())
        parts.remarks.push_back(control_remark(parts.tokenizer, changed));
    Result<FolderTemplates> chat = read_chat_templates(folder, special_keys);
    if (!chat) return chat.error();
    parts.tokenizer.chat_template = std::move(chat.value().text);
    parts.chat = std::move(chat.value().sources);
    if (Status s = say_left_out(tokenizer.value().left_out, folder, parts); !s) return s;

    const Result<Document> generation = read_document(folder, "generation_config.json");
    if (!generation) return generation.error();
    const Document& ends = generation.value().there ? generation.value() : config;
    JsonKeys keys(ends.root, ends.file, status);
    add_end_tokens(keys, vocab_size, parts.tokenizer, parts.remarks);
    if (generation.value().there) parts.sampling = read_sampling_defaults(keys);
    return status;
}

/// Without a slash at its end, so that what is joined to it reads well.
std::string trimmed(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

}  // namespace

Result<ModelFile::Contents> read_folder(const std::string& path) {
    const std::string folder = trimmed(path);
    const Result<Document> config = read_document(folder, "config.json");
    if (!config) return config.error();
    if (!config.value().there) {
        return Error{Errc::BadFile,
                     folder +
                         " is a directory without config.json; name a GGUF file, or a "
                         "Hugging Face folder"};
    }
    Status status;
    JsonKeys keys(config.value().root, config.value().file, status);
    const Result<FolderConfig> read = read_config(keys);
    if (!read) return read.error();

    Identity identity;
    identity.add("config.json", config.value().text);
    ModelParts parts;
    parts.format = "Hugging Face folder";
    parts.config = read.value().model;
    parts.long_rope = read.value().long_rope;
    parts.config.name = std::filesystem::path{folder}.filename().string();
    parts.architecture = read.value().architecture->class_name;
    parts.remarks = read.value().remarks;
    Result<Shards> shards = open_shards(folder);
    if (!shards) return shards.error();
    for (std::size_t i = 0; i < shards.value().files.size(); ++i) {
        const auto bytes = shards.value().files[i].bytes();
        identity.add("tensors", bytes.first(shards.value().data_starts[i]));
    }
    if (Status s = put_in_order(read.value(), folder, shards.value()); !s) return s.error();
    if (Status s = assign_tensors(read.value(), shards.value(), folder, parts); !s)
        return s.error();
    if (Status s = read_text_parts(folder, config.value(), identity, parts); !s) return s.error();
    Result<MappedFile> file = MappedFile::of_text(folder, identity.text());
    if (!file) return file.error();
    parts.data_start = file.value().bytes().size();
    return ModelFile::Contents{.file = std::move(file).value(),
                               .parts = std::move(parts),
                               .shards = std::move(shards.value().files)};
}

}  // namespace paceline::huggingface

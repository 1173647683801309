// The fixtures of make_piece_fixtures.py.
#include <algorithm>
#include <cstdint>
#include <fmt/core.h>

#include <doctest/doctest.h>

#include "ipc/base/utf8.hpp"
#include "model/weights/huggingface/folder_tokenizer.hpp"
#include "tests/unit/tokenizer/fixtures.hpp"

namespace paceline::fixtures {

using nlohmann::json;

std::string digest(const std::vector<TokenId>& numbers) {
    std::uint64_t value = 0xCBF29CE484222325;
    std::string text;
    for (const TokenId number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
    for (const char byte : text) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
    return fmt::format("{:016x}", value);
}

std::vector<std::string> piece_lines() {
    std::vector<std::string> lines = corpus();
    for (std::string& line : lines) line = utf8::replace_invalid(line);
    const json pieces = read_json("pieces.json");
    for (const json& line : pieces.at("lines")) lines.push_back(line);
    return lines;
}

PieceVocabulary piece_vocabulary(const std::string& name) {
    const json stated = read_json(name + ".json");
    PieceVocabulary out;
    out.tokens = stated.at("tokens").get<std::vector<std::string>>();
    for (const int kind : stated.at("kinds")) out.kinds.push_back(static_cast<TokenKind>(kind));
    out.scores = stated.at("scores").get<std::vector<double>>();
    if (stated.contains("merges")) out.merges = stated.at("merges");
    return out;
}

TokenizerData gguf_pieces(const PieceVocabulary& vocabulary) {
    TokenizerData data;
    data.model = "llama";
    data.pre = "default";
    data.tokens = vocabulary.tokens;
    data.kinds = vocabulary.kinds;
    data.scores = vocabulary.scores;
    data.bos = 1;
    data.eos = 2;
    data.unknown = 0;
    data.add_bos = true;
    data.pieces.steps = {{TextStep::Kind::Prepend, "", "\u2581"},
                         {TextStep::Kind::Replace, " ", "\u2581"}};
    data.pieces.drops_space = true;
    return data;
}

json piece_document(const json& variant, const PieceVocabulary& vocabulary) {
    const auto lists = [&](const char* list, const std::string& text) {
        const json texts = variant.value(list, json::array());
        return std::find(texts.begin(), texts.end(), text) != texts.end();
    };
    json added = json::array();
    json model = variant.at("model");
    const bool unigram = model.at("type") == "Unigram";
    model["vocab"] = unigram ? json::array() : json::object();
    for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
        const std::string& text = vocabulary.tokens[i];
        const TokenKind kind = vocabulary.kinds[i];
        const bool control = kind == TokenKind::Control || kind == TokenKind::Unknown;
        if (control || kind == TokenKind::User || lists("users", text)) {
            added.push_back({{"id", i},
                             {"content", text},
                             {"single_word", false},
                             {"lstrip", lists("lstrip", text)},
                             {"rstrip", lists("rstrip", text)},
                             {"normalized", variant.at("normalized")},
                             {"special", control}});
        }
        if (unigram) {
            model["vocab"].push_back({text, vocabulary.scores[i]});
        } else {
            model["vocab"][text] = i;
        }
    }
    if (!unigram) model["merges"] = vocabulary.merges;
    return {{"version", "1.0"},
            {"added_tokens", added},
            {"normalizer", variant.at("normalizer")},
            {"pre_tokenizer", variant.at("pre_tokenizer")},
            {"post_processor", nullptr},
            {"decoder", variant.at("decoder")},
            {"model", model}};
}

TokenizerData read_document(const json& document, std::size_t vocab_size) {
    Result<huggingface::FolderTokenizer> read = huggingface::read_tokenizer(
        document.dump(), "tokenizer.json", static_cast<int>(vocab_size));
    REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().what));
    REQUIRE_MESSAGE(read.value().data.refusal.empty(), read.value().data.refusal);
    return std::move(read).value().data;
}

}  // namespace paceline::fixtures

// SentencePiece vocabularies and all pre-tokenizers against what the Hugging Face and SentencePiece
// libraries say, on the whole corpus.
#include <doctest/doctest.h>

#include "ipc/base/utf8.hpp"
#include "model/tokenizer/pre_tokenizer.hpp"
#include "tests/unit/tokenizer/fixtures.hpp"

namespace paceline {
namespace {

using nlohmann::json;

Tokenizer made(const TokenizerData& data) {
    Result<Tokenizer> tokenizer = Tokenizer::make(data);
    REQUIRE_MESSAGE(tokenizer.ok(), (tokenizer.ok() ? "" : tokenizer.error().what));
    return std::move(tokenizer).value();
}

std::string numbers_text(const std::vector<TokenId>& ids) {
    std::string text;
    for (const TokenId id : ids) text += std::to_string(id) + " ";
    return text;
}

/// Checks ids by their digest; a failure shows them.
void check_ids(const std::vector<TokenId>& ids, const json& wanted) {
    const bool equal = fixtures::digest(ids) == wanted.get<std::string>();
    CHECK_MESSAGE(equal, numbers_text(ids));
}

std::string decoded(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    Detokenizer detokenizer{tokenizer};
    std::string text;
    for (const TokenId id : ids) {
        const std::string part = detokenizer.push(id);
        CHECK(utf8::valid_prefix(part) == part.size());
        text += part;
    }
    return text + detokenizer.finish();
}

void check_variant(const json& variant, const Tokenizer& tokenizer) {
    const std::vector<std::string> lines = fixtures::piece_lines();
    const json& ids = variant.at("ids");
    const json& as_text = variant.at("as_text");
    REQUIRE(ids.size() == lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const std::string key = std::to_string(i);
        CAPTURE(i);
        CAPTURE(lines[i]);
        const std::vector<TokenId> parsed = tokenizer.encode(lines[i], SpecialTokens::Parse);
        check_ids(parsed, ids.at(i));
        check_ids(tokenizer.encode(lines[i], SpecialTokens::AsText),
                  as_text.contains(key) ? as_text.at(key) : ids.at(i));
        if (variant.at("decoded").contains(key))
            CHECK(decoded(tokenizer, parsed) == variant.at("decoded").at(key).get<std::string>());
    }
}

}  // namespace

TEST_CASE("every pre-tokenizer cuts every line of the corpus where the Hugging Face library does") {
    const json cuts = fixtures::read_json("cuts.json");
    const std::vector<std::string> lines = fixtures::corpus();
    REQUIRE(cuts.size() >= 7);
    for (const auto& [name, wanted] : cuts.items()) {
        CAPTURE(name);
        const PreTokenizer kind = pre_tokenizer_named(name).value();
        REQUIRE(wanted.at("lines").size() == lines.size());
        for (std::size_t i = 0; i < lines.size(); ++i) {
            CAPTURE(i);
            CAPTURE(lines[i]);
            const std::string line = utf8::replace_invalid(lines[i]);
            std::vector<std::string_view> pieces;
            cut_pieces(kind, line, pieces);
            std::vector<TokenId> sizes;
            for (const std::string_view piece : pieces)
                sizes.push_back(static_cast<TokenId>(piece.size()));
            check_ids(sizes, wanted.at("lines").at(i));
        }
    }
}

TEST_CASE("the pre-tokenizers of tokenizer.json are recognised as the library writes them") {
    const TokenizerData stated = fixtures::tokenizer_data("gpt2");
    json vocabulary = json::object();
    for (std::size_t i = 0; i < stated.tokens.size(); ++i) vocabulary[stated.tokens[i]] = i;
    const json cuts = fixtures::read_json("cuts.json");
    for (const auto& [name, wanted] : cuts.items()) {
        const json model = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", stated.merges}};
        const json document = {{"model", model},
                               {"pre_tokenizer", wanted.at("pre_tokenizer")},
                               {"decoder", {{"type", "ByteLevel"}}}};
        const TokenizerData data = fixtures::read_document(document, stated.tokens.size());
        CHECK(data.pre == name);
        CHECK(Tokenizer::make(data).ok());
    }
}

TEST_CASE("SentencePiece vocabularies of tokenizer.json give the ids of the Hugging Face library") {
    const json variants = fixtures::read_json("pieces.json").at("variants");
    REQUIRE(variants.size() >= 12);
    for (const auto& [name, variant] : variants.items()) {
        CAPTURE(name);
        const bool unigram = variant.at("model").at("type") == "Unigram";
        const fixtures::PieceVocabulary vocabulary =
            fixtures::piece_vocabulary(unigram ? "unigram" : "spm");
        const json document = fixtures::piece_document(variant, vocabulary);
        check_variant(variant, made(fixtures::read_document(document, vocabulary.tokens.size())));
    }
}

TEST_CASE("scores of a GGUF file give the ids of the SentencePiece library") {
    const json wanted = fixtures::read_json("spm.json").at("digests");
    const std::vector<std::string> lines = fixtures::piece_lines();
    const Tokenizer tokenizer = made(fixtures::gguf_pieces(fixtures::piece_vocabulary("spm")));
    REQUIRE(wanted.size() > 300);
    for (const auto& [key, digest] : wanted.items()) {
        const std::string& line = lines.at(std::stoul(key));
        CAPTURE(line);
        check_ids(tokenizer.encode(line, SpecialTokens::Parse), digest);
    }
}

TEST_CASE("scores of a GGUF file give the ids of the merges of the same vocabulary") {
    const json variant = fixtures::read_json("pieces.json").at("variants").at("llama-legacy");
    check_variant(variant, made(fixtures::gguf_pieces(fixtures::piece_vocabulary("spm"))));
}

}  // namespace paceline

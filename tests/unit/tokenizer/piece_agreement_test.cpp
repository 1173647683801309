// SentencePiece vocabularies and all pre-tokenizers against what the Hugging Face and SentencePiece
// libraries say, on the whole corpus.
#include <doctest/doctest.h>

#include "ipc/base/utf8.hpp"
#include "model/tokenizer/pre_tokenizer.hpp"
#include "model/weights/gguf/gguf_model_keys.hpp"
#include "model/weights/gguf/gguf_tokenizer.hpp"
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

constexpr const char* kRules = "paceline.tokenizer.piece_rules";
constexpr const char* kSteps = "paceline.tokenizer.text_steps";

enum class OwnKeys { With, Without };

Result<TokenizerData> data_of(const GgufKeyWriter& written, int vocab_size) {
    const std::vector<std::byte> head = gguf_head(written, {});
    GgufHeader header = parse_gguf(head, "keys.gguf", GgufPart::Shard).value();
    const std::string file = "keys.gguf";
    GgufKeys keys{header, file};
    std::vector<std::string> remarks;
    return read_tokenizer(keys, vocab_size, remarks);
}

/// What a GGUF file's reader makes of `data` once it is written.
TokenizerData through_keys(const TokenizerData& data, OwnKeys own = OwnKeys::With) {
    GgufKeyWriter all;
    REQUIRE(add_tokenizer_keys(data, all).ok());
    GgufKeyWriter written;
    const std::vector<std::byte> head = gguf_head(all, {});
    const GgufHeader header = parse_gguf(head, "keys.gguf", GgufPart::Shard).value();
    for (const auto& [key, value] : header.values) {
        if (own == OwnKeys::With || !key.starts_with("paceline."))
            written.add_value(std::string{key}, value);
    }
    Result<TokenizerData> read = data_of(written, static_cast<int>(data.tokens.size()));
    REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().what));
    return std::move(read).value();
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

TEST_CASE(
    "a vocabulary of tokenizer.json that is written as keys of a GGUF file gives the same ids") {
    const json variants = fixtures::read_json("pieces.json").at("variants");
    for (const auto& [name, variant] : variants.items()) {
        CAPTURE(name);
        const bool unigram = variant.at("model").at("type") == "Unigram";
        const fixtures::PieceVocabulary vocabulary =
            fixtures::piece_vocabulary(unigram ? "unigram" : "spm");
        const json document = fixtures::piece_document(variant, vocabulary);
        const TokenizerData data = fixtures::read_document(document, vocabulary.tokens.size());
        const TokenizerData read = through_keys(data);
        CHECK(read.model == data.model);
        CHECK(read.merges == data.merges);
        CHECK(read.unknown == data.unknown);
        check_variant(variant, made(read));
    }
}

TEST_CASE("the scores that stand for merges give other programs the ids of the merges") {
    const json variants = fixtures::read_json("pieces.json").at("variants");
    const json& variant = variants.at("llama-legacy");
    const fixtures::PieceVocabulary vocabulary = fixtures::piece_vocabulary("spm");
    const json document = fixtures::piece_document(variant, vocabulary);
    const TokenizerData data = fixtures::read_document(document, vocabulary.tokens.size());
    // As a reader that knows none of Paceline's own keys.
    check_variant(variant, made(through_keys(data, OwnKeys::Without)));
}

TEST_CASE("bad keys of a SentencePiece vocabulary are named with their value") {
    const auto refused = [](const char* key, const std::vector<std::string>& texts) {
        GgufKeyWriter keys;
        keys.add_text("tokenizer.ggml.model", "llama");
        keys.add_texts("tokenizer.ggml.tokens", {"<unk>", "a"});
        if (std::string_view{key} != kRules) keys.add_texts(kRules, {"scores"});
        keys.add_texts(key, texts);
        const Result<TokenizerData> read = data_of(keys, 2);
        REQUIRE_FALSE(read.ok());
        CHECK(read.error().code == Errc::BadFile);
        return read.error().what;
    };
    CHECK(refused(kRules, {"scores", "upside-down"}).find("has the word \"upside-down\"") !=
          std::string::npos);
    CHECK(refused(kRules, {"merges"}).find("says merges, and there are none") != std::string::npos);
    CHECK(refused(kSteps, {"nfc", ""}).find("has 2 entries") != std::string::npos);
    CHECK(refused(kSteps, {"nfd", "", ""}).find("step 0 (\"nfd\")") != std::string::npos);
    CHECK(refused(kSteps, {"replace", "", "x"}).find("step 0 (\"replace\")") != std::string::npos);
    CHECK(refused(kSteps, {"prepend", "", "\xFF"}).find("step 0") != std::string::npos);
    CHECK(refused(kSteps, {"replace", "a", std::string(40, 'b')}).find("36 times longer") !=
          std::string::npos);
    std::vector<std::string> many;
    for (int i = 0; i < 17; ++i) many.insert(many.end(), {"replace", "a", "b"});
    CHECK(refused(kSteps, many).find("of 17 steps (more than 16)") != std::string::npos);
}

TEST_CASE("Unigram scores with more digits than a float32 are not written") {
    TokenizerData data;
    data.model = "unigram";
    data.tokens = {"<unk>", "a"};
    data.kinds = {TokenKind::Unknown, TokenKind::Normal};
    data.scores = {0.0, -0.1};
    GgufKeyWriter keys;
    const Status written = add_tokenizer_keys(data, keys);
    REQUIRE_FALSE(written.ok());
    CHECK(written.error().code == Errc::Unsupported);
    CHECK(written.error().what.find("float32") != std::string::npos);
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

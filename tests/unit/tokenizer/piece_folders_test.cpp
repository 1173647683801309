// SentencePiece vocabularies of tokenizer.json: which normalizers are refused, what is unknown, and
// which tokens the text of a user never becomes.
#include <doctest/doctest.h>

#include "model/weights/huggingface/folder_tokenizer.hpp"
#include "tests/unit/tokenizer/fixtures.hpp"

namespace paceline {
namespace {

using nlohmann::json;

json replacement(const std::string& from, const std::string& to) {
    return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

json document_of(const char* name) {
    const json pieces = fixtures::read_json("pieces.json");
    const json& variant = pieces.at("variants").at(name);
    const bool unigram = variant.at("model").at("type") == "Unigram";
    return fixtures::piece_document(variant,
                                    fixtures::piece_vocabulary(unigram ? "unigram" : "spm"));
}

/// With tokenizer_config.json `config`.
TokenizerData read(const json& document, const json& config = json::object()) {
    Result<huggingface::FolderTokenizer> tokenizer =
        huggingface::read_tokenizer(document.dump(), "tokenizer.json", 1000);
    REQUIRE_MESSAGE(tokenizer.ok(), (tokenizer.ok() ? "" : tokenizer.error().what));
    Status status;
    huggingface::JsonKeys keys(config, "tokenizer_config.json", status);
    huggingface::add_tokenizer_config(keys, tokenizer.value());
    REQUIRE(status.ok());
    return std::move(tokenizer).value().data;
}

/// Why a normalizer of these steps is refused; empty: it is not.
std::string refusal(const json& steps) {
    json document = document_of("no-prefix");
    document["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
    document["pre_tokenizer"] = nullptr;
    return read(document).refusal;
}

bool contains(const std::string& text, const char* part) {
    return text.find(part) != text.npos;
}

/// `document` without the entry of added_tokens for `text`: an ordinary token.
json without_added(json document, const char* text) {
    json& added = document["added_tokens"];
    for (std::size_t i = 0; i < added.size(); ++i) {
        if (added[i].at("content") != text) continue;
        added.erase(added.begin() + static_cast<json::difference_type>(i));
        return document;
    }
    FAIL("no such token");
    return document;
}

}  // namespace

TEST_CASE("a normalizer that makes much of little text is refused by what is too much") {
    const json spaces = replacement(" ", "\u2581");
    const json normal_form = {{"type", "NFC"}};
    json doublings = json::array();
    for (int i = 0; i < 5; ++i) doublings.push_back(replacement("a", "aa"));
    CHECK(refusal(doublings).empty());
    doublings.push_back(replacement("a", "aa"));
    CHECK(contains(refusal(doublings), "that may make a text more than 36 times longer"));
    CHECK(refusal(json::array({normal_form, spaces, replacement("aa", "a")})).empty());
    CHECK(contains(refusal(json::array({normal_form, spaces, normal_form, spaces})), "36 times"));
    CHECK(contains(refusal(json::array({replacement("a", std::string(65, 'b'))})),
                   "with a text of 65 bytes (more than 64)"));
    CHECK(contains(refusal(json::array({replacement(std::string(65, 'b'), "a")})), "65 bytes"));
    CHECK(contains(
        refusal(json::array({json{{"type", "Prepend"}, {"prepend", std::string(65, 'b')}}})),
        "65 bytes"));
    json many = json::array();
    for (int i = 0; i < 16; ++i) many.push_back(replacement("a", "b"));
    CHECK(refusal(many).empty());
    many.push_back(replacement("a", "b"));
    CHECK(contains(refusal(many), "a normalizer of 17 steps (more than 16) is not supported"));
}

TEST_CASE(
    "unknown characters vanish where the model has no unknown token, whatever unk_token says") {
    const json config = {{"unk_token", "<unk>"}};
    const auto encoded = [&](const char* name) {
        const Tokenizer tokenizer = Tokenizer::make(read(document_of(name), config)).value();
        return tokenizer.encode("\u4F60\u597D", SpecialTokens::AsText);
    };
    const std::vector<TokenId> fused = encoded("unknown-fused");
    REQUIRE(fused.size() == 2);
    CHECK(fused.back() == 0);
    CHECK(encoded("unknown-vanishes") == std::vector<TokenId>{fused.front()});
}

TEST_CASE("text of a user never becomes BOS, EOS or an end token, though added_tokens lacks them") {
    const json config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    for (const char* name : {"llama-legacy", "unigram-bytes"}) {
        CAPTURE(name);
        const json document = without_added(without_added(document_of(name), "<s>"), "</s>");
        TokenizerData data = read(document, config);
        const Tokenizer tokenizer = Tokenizer::make(data).value();
        for (const char* text : {"<s>", "</s>"}) {
            const TokenId token = tokenizer.find(text).value();
            CHECK(tokenizer.is_control(token));
            for (const TokenId id : tokenizer.encode(text, SpecialTokens::AsText))
                CHECK(id != token);
            CHECK(tokenizer.encode(text, SpecialTokens::Parse) == std::vector<TokenId>{token});
        }
    }
    const json ends = json::parse(R"({"eos_token_id": [2, 0]})");
    const auto kind_of_end = [&](const std::string& text) {
        TokenizerData data;
        data.tokens = {"a", "b", text};
        data.kinds.assign(3, TokenKind::Normal);
        Status status;
        huggingface::JsonKeys keys(ends, "generation_config.json", status);
        std::vector<std::string> remarks;
        huggingface::add_end_tokens(keys, 3, data, remarks);
        REQUIRE(status.ok());
        CHECK(remarks.empty());
        CHECK(data.end_tokens == std::vector<TokenId>{2, 0});
        CHECK(data.kinds[0] == TokenKind::Normal);
        return data.kinds[2];
    };
    CHECK(kind_of_end("<|end|>") == TokenKind::Control);
    // A line break ends some models' answers, and is text.
    CHECK(kind_of_end("\u010A") == TokenKind::Normal);
    CHECK(kind_of_end("\n") == TokenKind::Normal);
}

}  // namespace paceline

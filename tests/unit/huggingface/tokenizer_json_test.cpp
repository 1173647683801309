// tokenizer.json of the four families against the ids of the Hugging Face library, and the rules
// that a GGUF file cannot state.
#include <map>

#include <doctest/doctest.h>

#include "model/weights/huggingface/folder_tokenizer.hpp"
#include "tests/unit/huggingface/folder_copy.hpp"
#include "tests/unit/tokenizer/fixtures.hpp"

namespace paceline::testing {
namespace {

using nlohmann::json;

constexpr const char* kWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json byte_level(bool use_regex) {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", true},
            {"use_regex", use_regex}};
}

json pre_tokenizer(const std::string& family) {
    if (family == "gpt2") return byte_level(true);
    if (family == "smollm") {
        return {{"type", "Sequence"},
                {"pretokenizers",
                 {{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)}}};
    }
    std::string regex = kWords;
    regex.replace(regex.find("NUMBERS"), 7, family == "llama3" ? R"(\p{N}{1,3})" : R"(\p{N})");
    const json split = {{"type", "Split"},
                        {"pattern", {{"Regex", regex}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

/// The tokenizer.json of a fixture of tests/fixtures/tokenizer.
json document_of(const std::string& family, const TokenizerData& data) {
    json document = {{"version", "1.0"},          {"added_tokens", json::array()},
                     {"normalizer", nullptr},     {"pre_tokenizer", pre_tokenizer(family)},
                     {"post_processor", nullptr}, {"decoder", {{"type", "ByteLevel"}}}};
    json vocabulary = json::object();
    for (std::size_t i = 0; i < data.tokens.size(); ++i) {
        const bool control = data.kinds[i] == TokenKind::Control;
        if (control || data.kinds[i] == TokenKind::User) {
            document["added_tokens"].push_back({{"id", i},
                                                {"content", data.tokens[i]},
                                                {"special", control},
                                                {"normalized", false}});
        } else {
            vocabulary[data.tokens[i]] = i;
        }
    }
    document["model"] = {{"type", "BPE"},
                         {"vocab", vocabulary},
                         {"merges", data.merges},
                         {"ignore_merges", family == "llama3"}};
    if (family == "qwen2") document["normalizer"] = {{"type", "NFC"}};
    return document;
}

TokenizerData read(const json& document, std::size_t vocab_size) {
    Result<huggingface::FolderTokenizer> read = huggingface::read_tokenizer(
        document.dump(), "tokenizer.json", static_cast<int>(vocab_size));
    REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().what));
    REQUIRE_MESSAGE(read.value().data.refusal.empty(), read.value().data.refusal);
    return std::move(read).value().data;
}

}  // namespace

TEST_CASE("every line of the corpus gives the ids of the Hugging Face library, of each family") {
    for (const char* family : {"smollm", "gpt2", "llama3", "qwen2"}) {
        CAPTURE(family);
        const TokenizerData stated = fixtures::tokenizer_data(family);
        const TokenizerData data = read(document_of(family, stated), stated.tokens.size());
        CHECK(data.tokens == stated.tokens);
        CHECK(data.merges == stated.merges);
        const Result<Tokenizer> tokenizer = Tokenizer::make(data);
        REQUIRE(tokenizer.ok());
        fixtures::check_agreement(tokenizer.value(), family);
    }
}

TEST_CASE("merges may be pairs or texts, and ids that are left free are unused tokens") {
    const TokenizerData stated = fixtures::tokenizer_data("gpt2");
    json document = document_of("gpt2", stated);
    json pairs = json::array();
    for (const std::string& merge : stated.merges) {
        const std::size_t space = merge.find(' ');
        pairs.push_back({merge.substr(0, space), merge.substr(space + 1)});
    }
    document["model"]["merges"] = pairs;
    const TokenizerData data = read(document, stated.tokens.size() + 2);
    CHECK(data.merges == stated.merges);
    CHECK(data.tokens.back() == "[PAD" + std::to_string(stated.tokens.size() + 1) + "]");
    CHECK(data.kinds.back() == TokenKind::Unused);
}

TEST_CASE("the post-processor says what begins a text; add_bos_token counts only without one") {
    const FolderCopy copy("llama3-bf16");
    const auto begins = [&](const nlohmann::json& add_bos_token) {
        copy.patch("tokenizer_config.json", {{"add_bos_token", add_bos_token}});
        const ModelFile file = copy.opened();
        const Result<Tokenizer> tokenizer = Tokenizer::make(file.tokenizer());
        REQUIRE(tokenizer.ok());
        return tokenizer.value().prompt_bos() == TokenId{1};
    };
    for (const nlohmann::json& stated : {json(nullptr), json(false), json(true)})
        CHECK(begins(stated));
    copy.patch("tokenizer.json", {{"post_processor", {{"type", "ByteLevel"}}}});
    for (const nlohmann::json& stated : {json(nullptr), json(false), json(true)})
        CHECK_FALSE(begins(stated));
    copy.patch("tokenizer.json", {{"post_processor", nullptr}});
    CHECK_FALSE(begins(nullptr));
    CHECK_FALSE(begins(false));
    CHECK(begins(true));
}

}  // namespace paceline::testing

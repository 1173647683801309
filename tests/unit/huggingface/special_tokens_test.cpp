// Special tokens of a folder that the model has no row for, have no text, or are not marked as
// special.
#include <algorithm>

#include <doctest/doctest.h>

#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/model_parts.hpp"
#include "tests/unit/huggingface/folder_copy.hpp"

namespace paceline::testing {
namespace {

/// Adds it to added_tokens of llama3-bf16, which has 320 tokens.
void add_token(const FolderCopy& copy, const nlohmann::json& token) {
    nlohmann::json document = copy.json("tokenizer.json");
    document["added_tokens"].push_back(token);
    copy.write("tokenizer.json", document.dump());
}

bool remarks_have(const ModelFile& file, const std::string& words) {
    const std::vector<std::string>& remarks = file.contents().parts.remarks;
    return std::any_of(remarks.begin(), remarks.end(),
                       [&](const std::string& remark) { return contains(remark, words); });
}

}  // namespace

TEST_CASE("an added token with an id beyond the vocabulary is left out with a remark") {
    const FolderCopy copy("llama3-bf16");
    const ModelFile before = copy.opened();
    add_token(copy, {{"id", 320}, {"content", "<extra>"}, {"special", true}});
    const ModelFile file = copy.opened();
    CHECK(file.tokenizer().tokens == before.tokenizer().tokens);
    CHECK(remarks_have(file, "has \"<extra>\" with an id beyond the 320 tokens"));
    add_token(copy, {{"id", 321}, {"content", "<more>"}});
    CHECK(remarks_have(copy.opened(), "\"<extra>\" and 1 more with an id"));
}

TEST_CASE("such a token that the chat template writes is needed") {
    const FolderCopy copy("llama3-bf16");
    add_token(copy, {{"id", 320}, {"content", "<|turn|>"}, {"special", true}});
    copy.write("chat_template.jinja", "<|turn|>{{ messages[0].content }}");
    const Error error = copy.refused();
    CHECK(error.code == Errc::BadFile);
    CHECK(contains(error.what, "\"<|turn|>\" with an id beyond the 320 tokens"));
    CHECK(contains(error.what, "the chat template writes it"));
}

TEST_CASE("an end token beyond the vocabulary, -1 or null is ignored, with a remark") {
    const FolderCopy copy("llama3-bf16");
    copy.patch("generation_config.json",
               {{"eos_token_id", nlohmann::json::array({1, 320, -1, nullptr})}});
    const ModelFile file = copy.opened();
    CHECK(file.tokenizer().end_tokens == std::vector<TokenId>{1});
    CHECK(remarks_have(file, "eos_token_id 320 is no token; the model has 320"));
    CHECK(remarks_have(file, "eos_token_id -1 is no token"));
    CHECK(remarks_have(file, "generation_config.json"));
    copy.patch("generation_config.json", {{"eos_token_id", -1}});
    CHECK(copy.opened().tokenizer().end_tokens.empty());
    copy.remove("generation_config.json");
    copy.patch("config.json", {{"eos_token_id", 151645}});
    CHECK(remarks_have(copy.opened(), "config.json"));
}

TEST_CASE("an added token without text is ignored, as in the library") {
    const FolderCopy copy("llama3-bf16");
    const ModelFile before = copy.opened();
    add_token(copy, {{"id", 5}, {"content", ""}, {"special", true}});
    CHECK(copy.opened().tokenizer().tokens == before.tokenizer().tokens);
}

TEST_CASE("a token that ends a turn by its name is a control token, though it is not special") {
    const FolderCopy copy("llama3-bf16");
    nlohmann::json document = copy.json("tokenizer.json");
    nlohmann::json& token = document["added_tokens"][3];
    REQUIRE_FALSE(token.at("special").get<bool>());
    token["content"] = "<|end|>";
    const auto id = token.at("id").get<TokenId>();
    copy.write("tokenizer.json", document.dump());
    const ModelFile file = copy.opened();
    CHECK(file.tokenizer().kinds[static_cast<std::size_t>(id)] == TokenKind::Control);
    CHECK(remarks_have(file, "\"<|end|>\""));
    const std::vector<TokenId> ends = Tokenizer::make(file.tokenizer()).value().end_tokens();
    CHECK(std::find(ends.begin(), ends.end(), id) != ends.end());
}

}  // namespace paceline::testing

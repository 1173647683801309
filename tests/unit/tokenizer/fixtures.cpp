#include "tests/unit/tokenizer/fixtures.hpp"

#include <fstream>

#include <doctest/doctest.h>

#include "model/tokenizer/chat_template.hpp"
#include "tests/support/source_tree.hpp"

namespace paceline::fixtures {
namespace {

std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

std::optional<TokenId> optional_id(const nlohmann::json& value) {
    if (value.is_null()) return std::nullopt;
    return value.get<TokenId>();
}

}  // namespace

nlohmann::json read_json(const std::string& name) {
    const std::string path = testing::fixtures() + "/tokenizer/" + name;
    std::ifstream file{path};
    REQUIRE_MESSAGE(file.good(), "cannot read " << path);
    return nlohmann::json::parse(file);
}

TokenizerData tokenizer_data(const std::string& name) {
    const nlohmann::json json = read_json(name + ".json");
    TokenizerData data;
    data.model = json.at("model");
    data.pre = json.at("pre");
    data.tokens = json.at("tokens").get<std::vector<std::string>>();
    for (const int kind : json.at("kinds")) data.kinds.push_back(static_cast<TokenKind>(kind));
    data.merges = json.at("merges").get<std::vector<std::string>>();
    data.bos = optional_id(json.at("bos"));
    data.eos = optional_id(json.at("eos"));
    data.unknown = optional_id(json.at("unknown"));
    data.padding = optional_id(json.at("padding"));
    data.chat_template = json.at("chat_template");
    return data;
}

Tokenizer tokenizer(const std::string& name) {
    Result<Tokenizer> made = Tokenizer::make(tokenizer_data(name));
    REQUIRE_MESSAGE(made.ok(), name);
    return std::move(made).value();
}

std::vector<std::string> corpus() {
    std::vector<std::string> lines;
    for (const nlohmann::json& line : read_json("corpus.json")) {
        lines.push_back(line.is_string() ? line.get<std::string>() : from_hex(line.at("hex")));
    }
    return lines;
}

void check_agreement(const Tokenizer& tokenizer, const std::string& name) {
    const std::vector<std::string> lines = corpus();
    const nlohmann::json expected = read_json(name + ".expected.json");
    const nlohmann::json& ids = expected.at("ids");
    const nlohmann::json& as_text = expected.at("as_text");
    REQUIRE(lines.size() > 300);
    REQUIRE(ids.size() == lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
        CAPTURE(i);
        CAPTURE(lines[i]);
        const std::string key = std::to_string(i);
        const nlohmann::json& text_ids = as_text.contains(key) ? as_text.at(key) : ids.at(i);
        CHECK(tokenizer.encode(lines[i], SpecialTokens::Parse) ==
              ids.at(i).get<std::vector<TokenId>>());
        CHECK(tokenizer.encode(lines[i], SpecialTokens::AsText) ==
              text_ids.get<std::vector<TokenId>>());
    }
}

void check_chat(const Tokenizer& tokenizer, const TokenizerData& data, const std::string& name) {
    const Result<ChatTemplate> chat = ChatTemplate::make(data);
    REQUIRE(chat.ok());
    const nlohmann::json conversations = read_json("chat.json").at(name);
    REQUIRE(conversations.size() >= 5);
    for (const nlohmann::json& conversation : conversations) {
        CAPTURE(conversation.dump());
        std::vector<ChatMessage> messages;
        for (const nlohmann::json& message : conversation.at("messages")) {
            messages.push_back({message.at("role"), message.at("content")});
        }
        CHECK(chat.value().encode(tokenizer, messages, jinja::LocalTime{}).value() ==
              conversation.at("ids").get<std::vector<TokenId>>());
    }
}

}  // namespace paceline::fixtures

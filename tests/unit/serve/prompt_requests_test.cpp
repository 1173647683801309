#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launch/api/chat_request.hpp"
#include "launch/api/completion_request.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

json chat(const json& messages) {
    ApiResult<ChatRequest> read = chat_request({{"messages", messages}});
    return read ? json::parse(read.value().messages)
                : json{std::to_string(read.error().status) + " " + read.error().param};
}

std::string refusal(const json& messages) {
    ApiResult<ChatRequest> read = chat_request({{"messages", messages}});
    return read ? "accepted" : std::to_string(read.error().status) + " " + read.error().param;
}

TEST_CASE("chat: parts are joined, a developer is the system, other keys are left out") {
    const json messages = json::array(
        {{{"role", "developer"}, {"content", "a"}, {"weight", 3}},
         {{"role", "user"},
          {"name", "me"},
          {"content",
           json::array({{{"type", "text"}, {"text", "b"}}, {{"type", "text"}, {"text", "c"}}})}},
         {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", json::array()}}});
    CHECK(chat(messages) == json::array({{{"role", "system"}, {"content", "a"}},
                                         {{"role", "user"}, {"content", "bc"}, {"name", "me"}},
                                         {{"role", "assistant"}, {"content", ""}}}));
}

TEST_CASE("chat: the part of a message that is wrong is named") {
    const json user{{"role", "user"}, {"content", "x"}};
    CHECK(refusal(json::array({user, {{"role", "user"}}})) == "400 messages[1].content");
    CHECK(refusal(json::array({user, "x"})) == "400 messages[1]");
    CHECK(refusal(json::array(
              {{{"role", "user"}, {"content", json::array({{{"type", "image_url"}}})}}})) ==
          "400 messages[0].content[0]");
    CHECK(refusal(
              json::array({{{"role", "user"}, {"content", json::array({{{"type", "text"}}})}}})) ==
          "400 messages[0].content[0].text");
    CHECK(refusal(json::array(
              {{{"role", "assistant"}, {"content", "x"}, {"tool_calls", json::array({1})}}})) ==
          "400 messages[0].tool_calls[0]");
    CHECK(
        refusal(json::array({{{"role", "user"},
                              {"content", "x"},
                              {"tool_calls", json::array({{{"function", {{"name", "f"}}}}})}}})) ==
        "400 messages[0].tool_calls");
    json many = json::array();
    for (std::size_t i = 0; i <= kMessagesMax; ++i) many.push_back(user);
    CHECK(refusal(many) == "400 messages");
}

TEST_CASE("chat: arguments of the template may not replace what the server gives it") {
    const json messages = json::array({{{"role", "user"}, {"content", "x"}}});
    const auto with = [&](const json& arguments) {
        return chat_request({{"messages", messages}, {"chat_template_kwargs", arguments}});
    };
    CHECK(with({{"enable_thinking", false}}).value().arguments == R"({"enable_thinking":false})");
    CHECK(with(json::object()).value().arguments.empty());
    CHECK(with({{"messages", 1}}).error().param == "chat_template_kwargs.messages");
    CHECK(with({{"bos_token", "x"}}).error().param == "chat_template_kwargs.bos_token");
    CHECK(with(3).error().param == "chat_template_kwargs");
}

TEST_CASE("completion: a prompt is a text, token ids, or a list of both") {
    const auto prompts = [](const json& prompt) {
        return completion_prompts({{"prompt", prompt}}, 10).value();
    };
    using Ids = std::vector<TokenId>;
    CHECK(prompts("a") == std::vector<CompletionPrompt>{"a"});
    CHECK(prompts({1, 2}) == std::vector<CompletionPrompt>{Ids{1, 2}});
    CHECK(prompts(json::array({"a", "b"})) == std::vector<CompletionPrompt>{"a", "b"});
    CHECK(prompts(json::array({"a", json::array({9})})) ==
          std::vector<CompletionPrompt>{"a", Ids{9}});
}

TEST_CASE("completion: the prompt or token that is wrong is named") {
    const auto param = [](const json& prompt) {
        return completion_prompts({{"prompt", prompt}}, 10).error().param;
    };
    CHECK(param(nullptr) == "prompt");
    CHECK(param(3) == "prompt");
    CHECK(param(json::array()) == "prompt");
    CHECK(param({1, 10}) == "prompt[1]");
    CHECK(param({1, -1}) == "prompt[1]");
    CHECK(param({1, "a"}) == "prompt[1]");
    CHECK(param(json::array({"a", json::array()})) == "prompt[1]");
    CHECK(param(json::array({"a", json::array({10})})) == "prompt[1][0]");
}

}  // namespace
}  // namespace paceline::serve

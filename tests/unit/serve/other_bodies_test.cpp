// The bodies of /v1/responses and /v1/messages in the names of chats.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launch/api/messages/messages_request.hpp"
#include "launch/api/reply.hpp"
#include "launch/api/responses/responses_request.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

json responses(const json& body) {
    ApiResult<json> read = chat_body_of_responses(body);
    REQUIRE_MESSAGE(read, (read ? "" : read.error().message));
    return read.value();
}
std::string responses_refusal(const json& body) {
    ApiResult<json> read = chat_body_of_responses(body);
    return read ? "accepted" : std::to_string(read.error().status) + " " + read.error().param;
}
json messages(const json& body) {
    ApiResult<json> read = chat_body_of_messages(body);
    REQUIRE_MESSAGE(read, (read ? "" : read.error().message));
    return read.value();
}
std::string messages_refusal(const json& body) {
    ApiResult<json> read = chat_body_of_messages(body);
    return read ? "accepted" : std::to_string(read.error().status) + " " + read.error().param;
}

TEST_CASE("responses: items of the input become the messages of a chat") {
    const json read = responses(
        {{"instructions", "Be brief."},
         {"input",
          json::array(
              {{{"type", "message"},
                {"role", "developer"},
                {"content", json::array({{{"type", "input_text"}, {"text", "More."}}})}},
               {{"role", "user"}, {"content", "Rain?"}},
               {{"type", "reasoning"},
                {"summary", json::array()},
                {"content", json::array({{{"type", "reasoning_text"}, {"text", "So?"}}})}},
               {{"type", "function_call"},
                {"call_id", "c1"},
                {"name", "f"},
                {"arguments", "{\"a\":1}"}},
               {{"type", "function_call"}, {"call_id", "c2"}, {"name", "g"}, {"arguments", "{}"}},
               {{"type", "web_search_call"}, {"id", "x"}},
               {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "Yes"}},
               {{"type", "message"},
                {"role", "assistant"},
                {"content", json::array({{{"type", "output_text"}, {"text", "It does."}}})}}})},
         {"max_output_tokens", 7},
         {"temperature", 0.5},
         {"reasoning", {{"effort", "low"}, {"summary", "auto"}}},
         {"text",
          {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", {{"type", "object"}}}}}}},
         {"tools",
          json::array({{{"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}},
                       {{"type", "web_search"}},
                       {{"type", "custom"}, {"name", "apply_patch"}}})},
         {"store", false},
         {"previous_response_id", nullptr},
         {"stream", true}});
    const json& chat = read["messages"];
    REQUIRE(chat.size() == 5);
    CHECK(chat[0] == json{{"role", "system"}, {"content", "Be brief.\n\nMore."}});
    CHECK(chat[2]["reasoning_content"] == "So?");
    CHECK(chat[2]["tool_calls"].size() == 2);
    CHECK(chat[3] ==
          json{{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "Yes"}, {"name", "f"}});
    CHECK(chat[4] == json{{"role", "assistant"}, {"content", "It does."}});
    CHECK(read["max_tokens"] == 7);
    CHECK(read["temperature"] == 0.5);
    CHECK(read["reasoning_effort"] == "low");
    CHECK(read["response_format"]["json_schema"]["schema"] == json{{"type", "object"}});
    REQUIRE(read["tools"].size() == 1);
    CHECK(read["tools"][0]["function"]["name"] == "f");
    CHECK_FALSE(read.contains("input"));
    CHECK_FALSE(read.contains("text"));
}

TEST_CASE("responses: an empty input is a question without words") {
    for (const json& body : std::vector<json>{
             {{"input", json::array()}, {"max_output_tokens", 1}}, {{"input", ""}}, json::object()})
        CHECK(responses(body)["messages"] == json::array({{{"role", "user"}, {"content", ""}}}));
    CHECK(responses({{"instructions", "I"}, {"input", json::array()}})["messages"].size() == 2);
}

TEST_CASE("responses: what would have to be stored is refused by name") {
    CHECK(responses_refusal({{"input", "x"}, {"previous_response_id", "resp_1"}}) ==
          "400 previous_response_id");
    CHECK(responses_refusal({{"input", "x"}, {"conversation", "c"}}) == "400 conversation");
    CHECK(responses_refusal({{"input", "x"}, {"background", true}}) == "400 background");
    CHECK(responses_refusal({{"input", "x"}, {"background", false}, {"store", true}}) ==
          "accepted");
    CHECK(responses_refusal({{"input", json::array({{{"type", "item_reference"}}})}}) ==
          "400 input[0]");
    CHECK(responses_refusal({{"input", 3}}) == "400 input");
    CHECK(responses_refusal({{"input", json::array({3})}}) == "400 input[0]");
    const json image = json::array({{{"type", "input_image"}, {"image_url", "x"}}});
    CHECK(responses_refusal({{"input", json::array({{{"role", "user"}, {"content", image}}})}}) ==
          "400 input[0].content[0]");
    CHECK(repeated_fields({{"store", true}, {"temperature", 0.5}})["store"] == false);
    CHECK(repeated_fields({{"store", true}, {"temperature", 0.5}})["temperature"] == 0.5);
}

TEST_CASE("responses: log probabilities are included by name, and what adds nothing is ignored") {
    const std::string scores = "message.output_text.logprobs";
    const json with = responses({{"input", "x"},
                                 {"include", json::array({"reasoning.encrypted_content", scores})},
                                 {"top_logprobs", 3}});
    CHECK(with["logprobs"] == true);
    CHECK(with["top_logprobs"] == 3);
    CHECK_FALSE(with.contains("include"));
    CHECK(responses({{"input", "x"}, {"include", json::array({scores})}})["top_logprobs"] == 0);
    for (const json& included : {json(nullptr), json::array({"web_search_call.results"})}) {
        const json without = responses(
            {{"input", "x"}, {"include", included}, {"logprobs", true}, {"top_logprobs", 3}});
        CHECK_FALSE(without.contains("logprobs"));
        CHECK_FALSE(without.contains("top_logprobs"));
    }
    const auto refusal = [](const json& include, const json& top) {
        return responses_refusal({{"input", "x"}, {"include", include}, {"top_logprobs", top}});
    };
    CHECK(refusal(json::array({scores, "logprobs"}), 1) == "400 include[1]");
    CHECK(refusal(json::array({3}), 1) == "400 include");
    CHECK(refusal(scores, 1) == "400 include");
    CHECK(refusal(json::array({scores}), 21) == "400 top_logprobs");
    CHECK(refusal(nullptr, 21) == "400 top_logprobs");
    CHECK(repeated_fields({{"top_logprobs", 3}})["top_logprobs"] == 3);
}

TEST_CASE("messages: turns with calls, results and thoughts become those of a chat") {
    const json read = messages(
        {{"system",
          json::array({{{"type", "text"}, {"text", "x-anthropic-billing-header: cc=1; y"}},
                       {{"type", "text"},
                        {"text", "You help."},
                        {"cache_control", {{"type", "ephemeral"}}}}})},
         {"messages",
          json::array(
              {{{"role", "user"}, {"content", "Rain?"}},
               {{"role", "assistant"},
                {"content",
                 json::array({{{"type", "thinking"}, {"thinking", "So?"}, {"signature", "s"}},
                              {{"type", "redacted_thinking"}, {"data", "x"}},
                              {{"type", "text"}, {"text", "I look."}},
                              {{"type", "tool_use"},
                               {"id", "t1"},
                               {"name", "f"},
                               {"input", {{"a", 1}}}}})}},
               {{"role", "user"},
                {"content",
                 json::array({{{"type", "tool_result"},
                               {"tool_use_id", "t1"},
                               {"content", json::array({{{"type", "text"}, {"text", "Yes"}}})}},
                              {{"type", "text"}, {"text", "And?"}}})}},
               {{"role", "system"}, {"content", "Remember."}}})},
         {"max_tokens", 7},
         {"stop_sequences", json::array({"END"})},
         {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}},
         {"tools", json::array({{{"name", "f"}, {"input_schema", {{"type", "object"}}}},
                                {{"type", "web_search_20250305"}, {"name", "web_search"}}})},
         {"tool_choice", {{"type", "any"}, {"disable_parallel_tool_use", true}}},
         {"metadata", {{"user_id", "u"}}}});
    const json& chat = read["messages"];
    REQUIRE(chat.size() == 5);
    CHECK(chat[0] == json{{"role", "system"}, {"content", "You help."}});
    CHECK(chat[2]["content"] == "I look.");
    CHECK(chat[2]["reasoning_content"] == "So?");
    CHECK(chat[2]["tool_calls"][0]["function"] == json{{"name", "f"}, {"arguments", "{\"a\":1}"}});
    CHECK(chat[3]["content"] == "Yes");
    CHECK(chat[4] == json{{"role", "user"}, {"content", "And?\n\nRemember."}});
    CHECK(read["stop"] == json::array({"END"}));
    CHECK(read["tool_choice"] == "required");
    CHECK(read["parallel_tool_calls"] == false);
    CHECK(read["tools"].size() == 1);
    CHECK(read["tools"][0]["function"]["parameters"] == json{{"type", "object"}});
    CHECK(read["chat_template_kwargs"]["enable_thinking"] == true);
    CHECK_FALSE(read.contains("system"));
}

TEST_CASE("messages: the part that is wrong is named") {
    const auto with = [](const json& content) {
        return messages_refusal(
            {{"messages", json::array({{{"role", "user"}, {"content", content}}})}});
    };
    CHECK(messages_refusal(json::object()) == "400 messages");
    CHECK(messages_refusal({{"messages", json::array()}}) == "400 messages");
    CHECK(with(3) == "400 messages[0].content");
    CHECK(with(json::array({{{"type", "image"}}})) == "400 messages[0].content[0]");
    CHECK(with(json::array({3})) == "400 messages[0].content[0]");
    CHECK(messages_refusal({{"messages", json::array({{{"role", "x"}, {"content", "y"}}})}}) ==
          "400 messages[0].role");
    CHECK(messages_refusal({{"messages", json::array({{{"role", "user"}, {"content", "y"}}})},
                            {"tool_choice", {{"type", "x"}}}}) == "400 tool_choice.type");
}

TEST_CASE("messages: the line that names the billing goes, whatever stands in it") {
    const auto system = [](const std::string& text) {
        return messages(
            {{"system", text},
             {"messages",
              json::array({{{"role", "user"}, {"content", "x"}}})}})["messages"][0]["content"];
    };
    CHECK(system("x-anthropic-billing-header: a=1; b=2;\nYou help.") == "You help.");
    CHECK(system("You help.\nx-anthropic-billing-header: c\nMore.") == "You help.\nMore.");
    CHECK(system("You help.") == "You help.");
    CHECK(without_billing_line("x-anthropic-billing-header: a").empty());
}

TEST_CASE("messages: the billing line goes from every system text, and stays in what tools say") {
    const std::string line = "x-anthropic-billing-header: a=1\nRest.";
    const json block{{"type", "text"}, {"text", line}};
    const json blocks = json::array({block});
    for (const json& text : {json(line), blocks}) {
        const json chat = messages(
            {{"system", text},
             {"messages", json::array({{{"role", "user"},
                                        {"content", json::array({{{"type", "tool_result"},
                                                                  {"tool_use_id", "t"},
                                                                  {"content", text}},
                                                                 block})}},
                                       {{"role", "assistant"}, {"content", "So."}},
                                       {{"role", "system"}, {"content", text}}})}})["messages"];
        REQUIRE(chat.size() == 5);
        CHECK(chat[0]["content"] == "Rest.");
        CHECK(chat[1]["content"] == line);
        CHECK(chat[2]["content"] == line);
        CHECK(chat[4] == json{{"role", "user"}, {"content", "Rest."}});
    }
    const json alone = messages(
        {{"messages", json::array({{{"role", "user"}, {"content", "x"}},
                                   {{"role", "assistant"}, {"content", "y"}},
                                   {{"role", "system"},
                                    {"content", "x-anthropic-billing-header: a"}}})}})["messages"];
    CHECK(alone.size() == 2);
}

TEST_CASE("messages: errors have the form of that API") {
    const Reply reply = in_form(reply_of({.status = 401, .message = "a key"}), ErrorForm::Messages);
    CHECK(json::parse(reply.body) ==
          json{{"type", "error"},
               {"error", {{"type", "authentication_error"}, {"message", "a key"}}}});
    CHECK(
        json::parse(in_form(reply_of({.message = "x"}), ErrorForm::OpenAi).body)["error"]["type"] ==
        "invalid_request_error");
}

}  // namespace
}  // namespace paceline::serve

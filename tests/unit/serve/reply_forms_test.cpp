// The responses of chats with tools and thoughts, of /v1/responses and of /v1/messages.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launch/api/answer_events.hpp"
#include "launch/api/messages/messages_events.hpp"
#include "launch/api/responses/responses_events.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

const std::string kAnswer =
    "<think>\nSo?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

PreparedAnswers prepared(bool stream) {
    PreparedAnswers made;
    made.fields.stream = stream;
    made.fields.n = 1;
    made.seed = 5;
    made.prompt_tokens = {10};
    made.reply = {.tools = ToolFormat::Hermes, .names = {"f", "g"}, .thoughts = true};
    return made;
}

ResponseHead head() {
    return {.id = "1", .created = 2, .model = "m", .method = "pearl", .fingerprint = "f"};
}

/// `text` as tokens of `bytes` bytes, from token `begin` to token `end` of it.
AnswerPiece piece_of(const std::string& text,
                     std::size_t bytes,
                     std::size_t begin,
                     std::size_t end) {
    AnswerPiece piece{.begin = begin};
    for (std::size_t i = begin; i < end && i * bytes < text.size(); ++i) {
        piece.text += text.substr(i * bytes, bytes);
        piece.ids.push_back(1);
        piece.text_ends.push_back(piece.text.size());
    }
    return piece;
}

AnswerPiece ended(AnswerPiece piece, FinishReason finish = FinishReason::EndToken) {
    piece.over = true;
    piece.stats.finish = finish;
    piece.stats.cached_tokens = 4;
    return piece;
}

struct Event {
    std::string name = {};
    json data = {};
};

std::vector<Event> parsed(const std::string& events) {
    std::vector<Event> all;
    for (std::size_t at = 0; at < events.size();) {
        const std::size_t end = events.find("\n\n", at);
        REQUIRE(end != std::string::npos);
        Event event;
        std::string block = events.substr(at, end - at);
        at = end + 2;
        if (block.starts_with("event: ")) {
            event.name = block.substr(7, block.find('\n') - 7);
            block = block.substr(block.find('\n') + 1);
        }
        REQUIRE(block.starts_with("data: "));
        if (block == "data: [DONE]") continue;
        event.data = json::parse(block.substr(6));
        all.push_back(std::move(event));
    }
    return all;
}

/// All events of an answer that comes in pieces of `step` tokens of three bytes.
std::vector<Event> streamed(ResponseForm& form,
                            const std::string& text,
                            std::size_t step,
                            FinishReason finish = FinishReason::EndToken) {
    constexpr std::size_t kBytes = 3;
    std::string events = form.begin();
    const std::size_t tokens = (text.size() + kBytes - 1) / kBytes;
    for (std::size_t at = 0; at < tokens; at += step) {
        AnswerPiece piece = piece_of(text, kBytes, at, at + step);
        if (at + step >= tokens) piece = ended(std::move(piece), finish);
        events += form.add(0, piece);
    }
    events += form.end();
    return parsed(events);
}

/// What a client makes of the chunks.
json joined(const std::vector<Event>& events) {
    json message{{"calls", json::array()}, {"content", ""}, {"thought", ""}};
    for (const Event& event : events) {
        for (const json& choice : event.data["choices"]) {
            if (!choice["finish_reason"].is_null()) message["finish"] = choice["finish_reason"];
            const json& delta = choice["delta"];
            message["content"] = message["content"].get<std::string>() + delta.value("content", "");
            CHECK(delta.value("reasoning", "") == delta.value("reasoning_content", ""));
            message["thought"] =
                message["thought"].get<std::string>() + delta.value("reasoning", "");
            for (const json& call : delta.value("tool_calls", json::array())) {
                const auto index = call["index"].get<std::size_t>();
                if (call.contains("id")) {
                    REQUIRE(message["calls"].size() == index);
                    message["calls"].push_back({{"id", call["id"]},
                                                {"name", call["function"]["name"]},
                                                {"arguments", ""}});
                }
                json& own = message["calls"][index];
                own["arguments"] = own["arguments"].get<std::string>() +
                                   call["function"]["arguments"].get<std::string>();
            }
        }
    }
    return message;
}

TEST_CASE("chat: a stream of any pieces has the thought, the text and the calls of the whole") {
    AnswerEvents whole{chat_dialect(), head(), prepared(false)};
    CHECK(whole.add(0, ended(piece_of(kAnswer, 3, 0, 1000))).empty());
    const json body = json::parse(whole.body());
    const json message = body["choices"][0]["message"];
    CHECK(body["choices"][0]["finish_reason"] == "tool_calls");
    CHECK(message["content"] == "I look.");
    CHECK(message["reasoning"] == "So?");
    CHECK(message["reasoning_content"] == "So?");
    REQUIRE(message["tool_calls"].size() == 2);
    CHECK(message["tool_calls"][0]["function"] == json{{"name", "f"}, {"arguments", "{\"a\": 1}"}});
    CHECK(message["tool_calls"][1]["type"] == "function");
    CHECK(message["tool_calls"][0]["id"] != message["tool_calls"][1]["id"]);
    CHECK(body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5);
    for (const std::size_t step : {1U, 2U, 7U, 1000U}) {
        AnswerEvents form{chat_dialect(), head(), prepared(true)};
        const json read = joined(streamed(form, kAnswer, step));
        CHECK(read["content"] == "I look.");
        CHECK(read["thought"] == "So?");
        CHECK(read["finish"] == "tool_calls");
        for (std::size_t i = 0; i < 2; ++i) {
            CHECK(read["calls"][i]["id"] == message["tool_calls"][i]["id"]);
            CHECK(read["calls"][i]["arguments"] ==
                  message["tool_calls"][i]["function"]["arguments"]);
        }
    }
}

TEST_CASE("chat: an answer of calls alone has no content, one that was cut has the reason length") {
    const std::string call = kAnswer.substr(kAnswer.find("<tool_call>"));
    AnswerEvents alone{chat_dialect(), head(), prepared(false)};
    (void)alone.add(0, ended(piece_of(call, 3, 0, 1000)));
    CHECK(json::parse(alone.body())["choices"][0]["message"]["content"] == nullptr);
    AnswerEvents cut{chat_dialect(), head(), prepared(false)};
    (void)cut.add(0, ended(piece_of(call, 3, 0, 14), FinishReason::MaxTokens));
    const json body = json::parse(cut.body());
    CHECK(body["choices"][0]["finish_reason"] == "length");
    CHECK(body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{\"a");
}

TEST_CASE("chat: a stream that is continued behind any token lacks and repeats nothing") {
    PreparedAnswers resumable = prepared(true);
    AnswerEvents unbroken{chat_dialect(), head(), resumable};
    const json expected = joined(streamed(unbroken, kAnswer, 1));
    const std::size_t tokens = (kAnswer.size() + 2) / 3;
    for (std::size_t at = 0; at <= tokens + 1; ++at) {
        AnswerEvents first{chat_dialect(), head(), resumable};
        std::string events;
        if (at > 0) events = first.add(0, piece_of(kAnswer, 3, 0, std::min(at, tokens)));
        if (at > tokens) events += first.add(0, ended({.begin = tokens}));
        AnswerEvents second{chat_dialect(), head(), resumable};
        second.begin_at(at);
        for (std::size_t i = 0; i < tokens; i += 5)
            events += second.add(0, piece_of(kAnswer, 3, i, i + 5));
        events += second.add(0, ended({.begin = tokens}));
        CHECK(joined(parsed(events)) == expected);
    }
}

std::vector<std::string> names(const std::vector<Event>& events) {
    std::vector<std::string> all;
    for (const Event& event : events) {
        CHECK(event.data["type"] == event.name);
        if (all.empty() || all.back() != event.name || !event.name.ends_with("delta"))
            all.push_back(event.name);
    }
    return all;
}

TEST_CASE("responses: the row of events, with indices, and the whole in the last") {
    for (const std::size_t step : {1U, 4U, 1000U}) {
        ResponsesEvents form{head(), prepared(true)};
        const std::vector<Event> events = streamed(form, kAnswer, step);
        CHECK(names(events) == std::vector<std::string>{"response.created",
                                                        "response.in_progress",
                                                        "response.output_item.added",
                                                        "response.reasoning_text.delta",
                                                        "response.reasoning_text.done",
                                                        "response.output_item.done",
                                                        "response.output_item.added",
                                                        "response.content_part.added",
                                                        "response.output_text.delta",
                                                        "response.output_text.done",
                                                        "response.content_part.done",
                                                        "response.output_item.done",
                                                        "response.output_item.added",
                                                        "response.function_call_arguments.delta",
                                                        "response.function_call_arguments.done",
                                                        "response.output_item.done",
                                                        "response.output_item.added",
                                                        "response.function_call_arguments.delta",
                                                        "response.function_call_arguments.done",
                                                        "response.output_item.done",
                                                        "response.completed"});
        for (std::size_t i = 0; i < events.size(); ++i)
            CHECK(events[i].data["sequence_number"] == i);
        const json response = events.back().data["response"];
        CHECK(response["id"] == "resp_1");
        CHECK(response["status"] == "completed");
        REQUIRE(response["output"].size() == 4);
        CHECK(response["output"][0]["content"][0]["text"] == "So?");
        CHECK(response["output"][1]["content"][0]["text"] == "I look.");
        CHECK(response["output"][2]["arguments"] == "{\"a\": 1}");
        CHECK(response["output"][3]["name"] == "g");
        CHECK(response["usage"]["input_tokens"] == 10);
        CHECK(response["usage"]["input_tokens_details"]["cached_tokens"] == 4);
        CHECK(response["usage"]["output_tokens_details"]["reasoning_tokens"] == 5);
        std::map<std::string, std::string> text;  // by item
        for (const Event& event : events) {
            if (event.name.ends_with(".delta"))
                text[event.data["item_id"].get<std::string>()] +=
                    event.data["delta"].get<std::string>();
        }
        CHECK(text[response["output"][2]["id"].get<std::string>()] == "{\"a\": 1}");
        CHECK(text[response["output"][1]["id"].get<std::string>()] == "I look.");
    }
}

TEST_CASE("responses: one that was cut is incomplete, one that failed says why") {
    ResponsesEvents cut{head(), prepared(false)};
    CHECK(cut.add(0, ended(piece_of("Hello", 3, 0, 9), FinishReason::MaxTokens)).empty());
    const json body = json::parse(cut.body());
    CHECK(body["status"] == "incomplete");
    CHECK(body["incomplete_details"]["reason"] == "max_output_tokens");
    CHECK(body["output"][0]["status"] == "incomplete");
    ResponsesEvents failed{head(), prepared(true)};
    const std::vector<Event> events =
        parsed(failed.failure({.status = 503, .message = "gone", .code = "c"}));
    CHECK(events.at(0).name == "response.failed");
    CHECK(events[0].data["response"]["error"] == json{{"code", "c"}, {"message", "gone"}});
}

TEST_CASE("messages: blocks come one after the other between start and stop") {
    for (const std::size_t step : {1U, 4U, 1000U}) {
        MessagesEvents form{head(), prepared(true)};
        const std::vector<Event> events = streamed(form, kAnswer, step);
        const std::vector<std::string> block{"content_block_start", "content_block_delta",
                                             "content_block_stop"};
        std::vector<std::string> expected{"message_start", "ping"};
        for (int i = 0; i < 4; ++i) expected.insert(expected.end(), block.begin(), block.end());
        expected.insert(expected.end(), {"message_delta", "message_stop"});
        CHECK(names(events) == expected);
        std::string input;
        for (const Event& event : events) {
            if (event.name == "content_block_delta" && event.data["index"] == 2)
                input += event.data["delta"]["partial_json"].get<std::string>();
        }
        CHECK(input == "{\"a\": 1}");
        const json last = events[events.size() - 2].data;
        CHECK(last["delta"]["stop_reason"] == "tool_use");
        CHECK(last["usage"]["input_tokens"] == 6);
        CHECK(last["usage"]["cache_read_input_tokens"] == 4);
    }
}

TEST_CASE("messages: the whole has the blocks, the reason and the stop text") {
    MessagesEvents whole{head(), prepared(false)};
    (void)whole.add(0, ended(piece_of(kAnswer, 3, 0, 1000)));
    const json body = json::parse(whole.body());
    CHECK(body["content"][0] == json{{"type", "thinking"}, {"thinking", "So?"}, {"signature", ""}});
    CHECK(body["content"][1] == json{{"type", "text"}, {"text", "I look."}});
    CHECK(body["content"][2]["input"] == json{{"a", 1}});
    CHECK(body["content"][3]["type"] == "tool_use");
    CHECK(body["stop_reason"] == "tool_use");
    PreparedAnswers stops = prepared(false);
    stops.fields.stop = {"END"};
    MessagesEvents stopped{head(), stops};
    (void)stopped.add(0, ended(piece_of("Hello", 3, 0, 9), FinishReason::StopString));
    const json short_body = json::parse(stopped.body());
    CHECK(short_body["stop_reason"] == "stop_sequence");
    CHECK(short_body["stop_sequence"] == "END");
    const Event failed =
        parsed(stopped.failure({.status = 503, .message = "gone", .code = "c"})).at(0);
    CHECK(failed.name == "error");
    CHECK(failed.data["error"] == json{{"type", "overloaded_error"}, {"message", "gone"}});
}

}  // namespace
}  // namespace paceline::serve

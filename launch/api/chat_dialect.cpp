#include <nlohmann/json.hpp>

#include "launch/api/answer_dialect.hpp"

namespace paceline::serve {
namespace {

using Json = AnswerDialect::Json;

Json chat_choice(std::size_t index, Json delta, Json finish_reason) {
    return {{"index", index},
            {"delta", std::move(delta)},
            {"logprobs", nullptr},
            {"finish_reason", std::move(finish_reason)}};
}

Json chat_first(std::size_t index) {
    return chat_choice(index, {{"role", "assistant"}, {"content", ""}}, nullptr);
}
/// Thoughts under both names: clients read one or the other.
void add_thought(const std::string& thought, Json& message) {
    if (thought.empty()) return;
    message["reasoning_content"] = thought;
    message["reasoning"] = thought;
}

Json chat_delta(std::size_t index, const ReplyDelta& delta) {
    Json json = Json::object();
    add_thought(delta.thought, json);
    if (!delta.text.empty()) json["content"] = delta.text;
    for (const CallDelta& call : delta.calls) {
        Json part{{"index", call.index}};
        if (!call.id.empty()) {
            part["id"] = call.id;
            part["type"] = "function";
            part["function"]["name"] = call.name;
        }
        part["function"]["arguments"] = call.arguments;
        json["tool_calls"].push_back(std::move(part));
    }
    return chat_choice(index, std::move(json), nullptr);
}
Json chat_last(std::size_t index, const char* finish_reason) {
    return chat_choice(index, Json::object(), finish_reason);
}
/// An answer of calls alone has no content.
Json chat_whole(std::size_t index, const WholeReply& reply, const char* finish_reason) {
    const bool calls_alone = reply.text.empty() && !reply.calls.empty();
    Json message{{"role", "assistant"},
                 {"content", calls_alone ? Json() : Json(reply.text)},
                 {"refusal", nullptr}};
    add_thought(reply.thought, message);
    for (const ReplyCall& call : reply.calls)
        message["tool_calls"].push_back(
            {{"id", call.id},
             {"type", "function"},
             {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    return {{"index", index},
            {"message", std::move(message)},
            {"logprobs", nullptr},
            {"finish_reason", finish_reason}};
}

}  // namespace

const AnswerDialect& chat_dialect() {
    static constexpr AnswerDialect kChat{.id_prefix = "chatcmpl-",
                                         .whole_object = "chat.completion",
                                         .chunk_object = "chat.completion.chunk",
                                         .first = chat_first,
                                         .delta = chat_delta,
                                         .last = chat_last,
                                         .whole = chat_whole,
                                         .scores = chat_choice_scores};
    return kChat;
}

}  // namespace paceline::serve

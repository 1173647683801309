#include "launch/api/messages/messages_events.hpp"

#include <utility>

#include "launch/api/messages/messages_error.hpp"

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string compact(const Json& data) {
    return data.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// An event that has the name of its data's type.
std::string typed_event(const Json& data) {
    return "event: " + data["type"].get<std::string>() + "\ndata: " + compact(data) + "\n\n";
}

/// The arguments of a call as an object; those that were cut are none.
Json input_of(const std::string& arguments) {
    Json input = Json::parse(arguments, nullptr, false);
    return input.is_object() ? input : Json::object();
}

}  // namespace

MessagesEvents::MessagesEvents(ResponseHead head, const PreparedAnswers& prepared)
    : BlockForm{std::move(head), prepared}, stops_{prepared.fields.stop} {}

Json MessagesEvents::whole_block(std::size_t index) const {
    const ReplyBlock& block = blocks().all()[index];
    switch (block.kind) {
        case BlockKind::Thought:
            return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
        case BlockKind::Text:
            return {{"type", "text"}, {"text", block.text}};
        default:
            return {{"type", "tool_use"},
                    {"id", call_id("toolu_", head().id, 0, block.call, format().tools)},
                    {"name", block.name},
                    {"input", input_of(block.text)}};
    }
}

/// A block as it begins: without its text and input.
std::string MessagesEvents::opened(std::size_t index) {
    Json block = whole_block(index);
    for (const char* name : {"thinking", "text"}) {
        if (block["type"] == name) block[name] = "";
    }
    if (block["type"] == "tool_use") block["input"] = Json::object();
    return typed_event(Json{
        {"type", "content_block_start"}, {"index", index}, {"content_block", std::move(block)}});
}

std::string MessagesEvents::delta(std::size_t index, const std::string& text) {
    Json change;
    switch (blocks().all()[index].kind) {
        case BlockKind::Thought:
            change = {{"type", "thinking_delta"}, {"thinking", text}};
            break;
        case BlockKind::Text:
            change = {{"type", "text_delta"}, {"text", text}};
            break;
        case BlockKind::Call:
            change = {{"type", "input_json_delta"}, {"partial_json", text}};
    }
    return typed_event(
        Json{{"type", "content_block_delta"}, {"index", index}, {"delta", std::move(change)}});
}

std::string MessagesEvents::closed(std::size_t index) {
    return typed_event(Json{{"type", "content_block_stop"}, {"index", index}});
}

Json MessagesEvents::usage() const {
    const Json usage = report().usage();
    const std::int64_t cached = report().cached_tokens();
    return {{"input_tokens", usage["prompt_tokens"].get<std::int64_t>() - cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", cached},
            {"output_tokens", usage["completion_tokens"]}};
}

const char* MessagesEvents::stop_reason() const {
    if (is_cut()) return "max_tokens";
    if (finish() == FinishReason::StopString) return "stop_sequence";
    return blocks().calls() > 0 ? "tool_use" : "end_turn";
}

/// Which of several it was is not known here.
Json MessagesEvents::stop_sequence() const {
    return finish() == FinishReason::StopString && stops_.size() == 1 ? Json(stops_.front())
                                                                      : Json();
}

Json MessagesEvents::message(bool over) const {
    Json data{{"id", "msg_" + head().id}, {"type", "message"},        {"role", "assistant"},
              {"model", head().model},    {"content", Json::array()}, {"stop_reason", nullptr},
              {"stop_sequence", nullptr}, {"usage", usage()}};
    if (!over) return data;
    for (std::size_t i = 0; i < blocks().all().size(); ++i)
        data["content"].push_back(whole_block(i));
    data["stop_reason"] = stop_reason();
    data["stop_sequence"] = stop_sequence();
    data["paceline"] = report().paceline();
    return data;
}

std::string MessagesEvents::begin() {
    return typed_event(Json{{"type", "message_start"}, {"message", message(false)}}) +
           typed_event(Json{{"type", "ping"}});
}

std::string MessagesEvents::end() {
    return typed_event(
               Json{{"type", "message_delta"},
                    {"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
                    {"usage", usage()},
                    {"paceline", report().paceline()}}) +
           typed_event(Json{{"type", "message_stop"}});
}

std::string MessagesEvents::body() const {
    return compact(message(true));
}

std::string MessagesEvents::failure(const ApiError& error) {
    return typed_event(messages_error(error));
}

}  // namespace paceline::serve

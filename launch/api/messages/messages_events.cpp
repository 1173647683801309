#include "launch/api/messages/messages_events.hpp"

#include <string_view>
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
    : head_{std::move(head)},
      format_{prepared.reply},
      stops_{prepared.fields.stop},
      stream_{prepared.fields.stream},
      reply_{format_},
      report_{prepared.prompt_tokens, 1, prepared.seed, head_.method, head_.gamma} {}

Json MessagesEvents::whole_block(std::size_t index) const {
    const ReplyBlock& block = blocks_.all()[index];
    switch (block.kind) {
        case BlockKind::Thought:
            return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
        case BlockKind::Text:
            return {{"type", "text"}, {"text", block.text}};
        default:
            return {{"type", "tool_use"},
                    {"id", call_id("toolu_", head_.id, 0, block.call, format_.tools)},
                    {"name", block.name},
                    {"input", input_of(block.text)}};
    }
}

/// A block as it begins: without its text and input.
Json MessagesEvents::opened(std::size_t index) const {
    Json block = whole_block(index);
    for (const char* name : {"thinking", "text"}) {
        if (block["type"] == name) block[name] = "";
    }
    if (block["type"] == "tool_use") block["input"] = Json::object();
    return {{"type", "content_block_start"}, {"index", index}, {"content_block", std::move(block)}};
}

Json MessagesEvents::delta(std::size_t index, const std::string& text) const {
    Json change;
    switch (blocks_.all()[index].kind) {
        case BlockKind::Thought:
            change = {{"type", "thinking_delta"}, {"thinking", text}};
            break;
        case BlockKind::Text:
            change = {{"type", "text_delta"}, {"text", text}};
            break;
        case BlockKind::Call:
            change = {{"type", "input_json_delta"}, {"partial_json", text}};
    }
    return {{"type", "content_block_delta"}, {"index", index}, {"delta", std::move(change)}};
}

std::string MessagesEvents::events_of(const std::vector<BlockStep>& steps) const {
    std::string events;
    for (const BlockStep& step : steps) {
        switch (step.kind) {
            case BlockStep::Kind::Open:
                events += typed_event(opened(step.block));
                break;
            case BlockStep::Kind::Delta:
                events += typed_event(delta(step.block, step.text));
                break;
            case BlockStep::Kind::Close:
                events += typed_event(Json{{"type", "content_block_stop"}, {"index", step.block}});
        }
    }
    return events;
}

Json MessagesEvents::usage() const {
    const Json usage = report_.usage();
    const std::int64_t cached = report_.cached_tokens();
    return {{"input_tokens", usage["prompt_tokens"].get<std::int64_t>() - cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", cached},
            {"output_tokens", usage["completion_tokens"]}};
}

const char* MessagesEvents::stop_reason() const {
    switch (finish_) {
        case FinishReason::MaxTokens:
        case FinishReason::ContextFull:
            return "max_tokens";
        case FinishReason::StopString:
            return "stop_sequence";
        default:
            return blocks_.calls() > 0 ? "tool_use" : "end_turn";
    }
}

/// Which of several it was is not known here.
Json MessagesEvents::stop_sequence() const {
    return finish_ == FinishReason::StopString && stops_.size() == 1 ? Json(stops_.front())
                                                                     : Json();
}

Json MessagesEvents::message(bool over) const {
    Json data{{"id", "msg_" + head_.id},  {"type", "message"},        {"role", "assistant"},
              {"model", head_.model},     {"content", Json::array()}, {"stop_reason", nullptr},
              {"stop_sequence", nullptr}, {"usage", usage()}};
    if (!over) return data;
    for (std::size_t i = 0; i < blocks_.all().size(); ++i)
        data["content"].push_back(whole_block(i));
    data["stop_reason"] = stop_reason();
    data["stop_sequence"] = stop_sequence();
    data["paceline"] = report_.paceline();
    return data;
}

std::string MessagesEvents::begin() {
    return typed_event(Json{{"type", "message_start"}, {"message", message(false)}}) +
           typed_event(Json{{"type", "ping"}});
}

std::string MessagesEvents::add(std::size_t /*choice*/, const AnswerPiece& piece) {
    std::vector<BlockStep> steps = blocks_.add(reply_.add(piece));
    report_.add_tokens(piece.ids.size());
    std::string events = stream_ ? events_of(steps) : std::string{};
    if (!piece.over) return events;
    report_.add(0, piece.stats);
    finish_ = piece.stats.finish;
    check_end(piece);
    if (!status()) return events;
    steps = blocks_.finish(std::string_view{stop_reason()} != "max_tokens");
    return stream_ ? events + events_of(steps) : std::string{};
}

std::string MessagesEvents::end() {
    return typed_event(
               Json{{"type", "message_delta"},
                    {"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
                    {"usage", usage()},
                    {"paceline", report_.paceline()}}) +
           typed_event(Json{{"type", "message_stop"}});
}

std::string MessagesEvents::body() const {
    return compact(message(true));
}

std::string MessagesEvents::failure(const ApiError& error) {
    return typed_event(messages_error(error));
}

}  // namespace paceline::serve

#include "launch/api/responses/responses_events.hpp"

#include <string_view>
#include <utility>

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& data) {
    return data.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json text_part(const std::string& text, Json scores) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", std::move(scores)}};
}

}  // namespace

ResponsesEvents::ResponsesEvents(ResponseHead head, const PreparedAnswers& prepared)
    : BlockForm{std::move(head), prepared},
      repeated_(prepared.repeated.empty() ? Json::object() : Json::parse(prepared.repeated)) {}

std::string ResponsesEvents::event(const char* type, Json data) {
    Json whole{{"type", type}, {"sequence_number", sequence_++}};
    for (auto& [key, value] : data.items()) whole[key] = std::move(value);
    return "event: " + std::string{type} + "\ndata: " + text_of(whole) + "\n\n";
}

std::string ResponsesEvents::item_id(std::size_t block) const {
    constexpr const char* kPrefixes[] = {"rs_", "msg_", "fc_"};
    const auto kind = static_cast<std::size_t>(blocks().all()[block].kind);
    return kPrefixes[kind] + head().id + "_" + std::to_string(block);
}

/// As it is when it begins, or with all that it came to.
Json ResponsesEvents::item(std::size_t index, bool whole) const {
    const ReplyBlock& block = blocks().all()[index];
    const std::string text = whole ? block.text : std::string{};
    const char* status = !whole ? "in_progress" : block.complete ? "completed" : "incomplete";
    Json data{{"id", item_id(index)}};
    switch (block.kind) {
        case BlockKind::Thought:
            data["type"] = "reasoning";
            data["summary"] = Json::array();
            data["content"] = Json::array();
            if (whole) data["content"].push_back({{"type", "reasoning_text"}, {"text", text}});
            data["encrypted_content"] = nullptr;
            break;
        case BlockKind::Text:
            data["type"] = "message";
            data["role"] = "assistant";
            data["content"] = Json::array();
            if (whole) data["content"].push_back(text_part(text, block_scores(index)));
            break;
        case BlockKind::Call:
            data["type"] = "function_call";
            data["call_id"] = call_id("call_", head().id, 0, block.call, format().tools);
            data["name"] = block.name;
            data["arguments"] = text;
            break;
    }
    data["status"] = status;
    return data;
}

std::string ResponsesEvents::opened(std::size_t block) {
    std::string events = event("response.output_item.added",
                               {{"output_index", block}, {"item", item(block, false)}});
    if (blocks().all()[block].kind == BlockKind::Text)
        events += event("response.content_part.added", {{"item_id", item_id(block)},
                                                        {"output_index", block},
                                                        {"content_index", 0},
                                                        {"part", text_part({}, Json::array())}});
    return events;
}

std::string ResponsesEvents::delta(std::size_t block, const std::string& text) {
    Json data{{"item_id", item_id(block)}, {"output_index", block}};
    const BlockKind kind = blocks().all()[block].kind;
    if (kind != BlockKind::Call) data["content_index"] = 0;
    data["delta"] = text;
    if (kind == BlockKind::Text) data["logprobs"] = delta_scores();
    switch (kind) {
        case BlockKind::Thought:
            return event("response.reasoning_text.delta", std::move(data));
        case BlockKind::Text:
            return event("response.output_text.delta", std::move(data));
        default:
            return event("response.function_call_arguments.delta", std::move(data));
    }
}

std::string ResponsesEvents::closed(std::size_t index) {
    const ReplyBlock& block = blocks().all()[index];
    Json data{{"item_id", item_id(index)}, {"output_index", index}};
    std::string events;
    switch (block.kind) {
        case BlockKind::Thought:
            data["content_index"] = 0;
            data["text"] = block.text;
            events = event("response.reasoning_text.done", std::move(data));
            break;
        case BlockKind::Text: {
            data["content_index"] = 0;
            Json part = data;
            part["part"] = text_part(block.text, block_scores(index));
            data["text"] = block.text;
            data["logprobs"] = block_scores(index);
            events = event("response.output_text.done", std::move(data));
            events += event("response.content_part.done", std::move(part));
            break;
        }
        case BlockKind::Call:
            data["name"] = block.name;
            data["arguments"] = block.text;
            events = event("response.function_call_arguments.done", std::move(data));
            break;
    }
    return events + event("response.output_item.done",
                          {{"output_index", index}, {"item", item(index, true)}});
}

std::string ResponsesEvents::begin() {
    std::string events = event("response.created", {{"response", response("in_progress")}});
    events += event("response.in_progress", {{"response", response("in_progress")}});
    return events;
}

Json ResponsesEvents::usage() const {
    const Json usage = report().usage();
    return {{"input_tokens", usage["prompt_tokens"]},
            {"input_tokens_details", usage["prompt_tokens_details"]},
            {"output_tokens", usage["completion_tokens"]},
            {"output_tokens_details",
             {{"reasoning_tokens", usage["completion_tokens_details"]["reasoning_tokens"]}}},
            {"total_tokens", usage["total_tokens"]}};
}

Json ResponsesEvents::response(const char* status) const {
    const bool over = finish() != FinishReason::None;
    Json data{{"id", "resp_" + head().id},     {"object", "response"},
              {"created_at", head().created},  {"status", status},
              {"background", false},           {"error", nullptr},
              {"incomplete_details", nullptr}, {"model", head().model}};
    if (std::string_view{status} == "incomplete")
        data["incomplete_details"] = {{"reason", "max_output_tokens"}};
    data["output"] = Json::array();
    for (std::size_t i = 0; over && i < blocks().all().size(); ++i)
        data["output"].push_back(item(i, true));
    for (const auto& [key, value] : repeated_.items()) data[key] = value;
    data["usage"] = over ? usage() : Json();
    if (!over) return data;
    data["timings"] = report().timings();
    data["metrics"] = report().metrics();
    data["paceline"] = report().paceline();
    return data;
}

std::string ResponsesEvents::end() {
    const std::string status = end_status();
    return event(("response." + status).c_str(), {{"response", response(status.c_str())}});
}

std::string ResponsesEvents::body() const {
    return text_of(response(end_status()));
}

std::string ResponsesEvents::failure(const ApiError& error) {
    Json failed = response("failed");
    failed["error"] = {{"code", error.code.empty() ? "server_error" : error.code},
                       {"message", error.message}};
    return event("response.failed", {{"response", std::move(failed)}});
}

}  // namespace paceline::serve

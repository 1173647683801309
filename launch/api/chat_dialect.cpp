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
Json chat_delta(std::size_t index, const std::string& text) {
    return chat_choice(index, {{"content", text}}, nullptr);
}
Json chat_last(std::size_t index, const char* finish_reason) {
    return chat_choice(index, Json::object(), finish_reason);
}
Json chat_whole(std::size_t index, const std::string& text, const char* finish_reason) {
    return {{"index", index},
            {"message", {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}}},
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
                                         .whole = chat_whole};
    return kChat;
}

}  // namespace paceline::serve

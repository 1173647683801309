#include <nlohmann/json.hpp>

#include "launch/api/answer_dialect.hpp"

namespace paceline::serve {
namespace {

using Json = AnswerDialect::Json;

Json completion_choice(std::size_t index, const std::string& text, Json finish_reason) {
    return {{"index", index},
            {"text", text},
            {"logprobs", nullptr},
            {"finish_reason", std::move(finish_reason)}};
}

Json completion_delta(std::size_t index, const ReplyDelta& delta) {
    return completion_choice(index, delta.text, nullptr);
}
Json completion_last(std::size_t index, const char* finish_reason) {
    return completion_choice(index, "", finish_reason);
}
Json completion_whole(std::size_t index, const WholeReply& reply, const char* finish_reason) {
    return completion_choice(index, reply.text, finish_reason);
}

}  // namespace

const AnswerDialect& completion_dialect() {
    static constexpr AnswerDialect kCompletion{.id_prefix = "cmpl-",
                                               .whole_object = "text_completion",
                                               .chunk_object = "text_completion",
                                               .first = nullptr,
                                               .delta = completion_delta,
                                               .last = completion_last,
                                               .whole = completion_whole,
                                               .scores = completion_choice_scores};
    return kCompletion;
}

}  // namespace paceline::serve

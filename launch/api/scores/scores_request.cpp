#include "launch/api/scores/scores_request.hpp"

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "launch/api/fields.hpp"

namespace paceline::serve {

ApiResult<ScoresRequest> chat_scores(const nlohmann::ordered_json& body) {
    ScoresRequest read;
    Fields fields{body};
    std::optional<std::int64_t> top;
    fields.boolean("logprobs", read.scores.answer);
    fields.integer("top_logprobs", top, 0, kTopScoresMax);
    if (top && *top > 0 && !read.scores.answer)
        fields.refuse("top_logprobs", "needs \"logprobs\": true");
    if (const auto* echo = fields.find("echo"); echo != nullptr && *echo != false)
        fields.refuse("echo", "is for /v1/completions");
    if (fields.error()) return *fields.error();
    read.scores.top = static_cast<std::int32_t>(top.value_or(0));
    return read;
}

ApiResult<ScoresRequest> completion_scores(const nlohmann::ordered_json& body) {
    ScoresRequest read;
    Fields fields{body};
    fields.boolean("echo", read.echo);
    std::optional<std::int64_t> top;
    const auto* given = fields.find("logprobs");
    if (given != nullptr && *given != false) fields.integer("logprobs", top, 0, kTopScoresMax);
    if (fields.error()) return *fields.error();
    read.scores = {.answer = top.has_value(),
                   .prompt = top.has_value() && read.echo,
                   .top = static_cast<std::int32_t>(top.value_or(0))};
    return read;
}

}  // namespace paceline::serve

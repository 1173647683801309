// `logprobs`, `top_logprobs` and `echo` of a request.
//
//     chats         "logprobs": true, "top_logprobs": 0 to 20
//     completions   "logprobs": 0 to 20 (how many of the most probable), "echo": true
//
// With both of the latter the tokens of the prompt are scored too. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"
#include "model/sampling/token_scores.hpp"

namespace paceline::serve {

struct ScoresRequest {
    ScoreOptions scores = {};
    bool echo = false;  // the text begins with the prompt
};

/// Errors: 400 naming the field.
[[nodiscard]] ApiResult<ScoresRequest> chat_scores(const nlohmann::ordered_json& body);
[[nodiscard]] ApiResult<ScoresRequest> completion_scores(const nlohmann::ordered_json& body);

}  // namespace paceline::serve

// The body of POST /v1/responses in the names of /v1/chat/completions.
//
//     instructions, input -> messages        max_output_tokens -> max_tokens
//     tools (functions alone) -> tools       text.format -> response_format
//     reasoning.effort -> reasoning_effort
//     include "message.output_text.logprobs" -> logprobs
//
// Items of the input are messages, function_call, function_call_output and reasoning; others, of
// tools that this server does not have, are left out. Nothing is stored: references to what an
// earlier response was are refused. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

/// Errors: 400 naming the field as the body has it.
[[nodiscard]] ApiResult<nlohmann::ordered_json> chat_body_of_responses(
    const nlohmann::ordered_json& body);
/// The fields of a request that its response repeats.
[[nodiscard]] nlohmann::ordered_json repeated_fields(const nlohmann::ordered_json& body);

}  // namespace paceline::serve

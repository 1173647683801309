// The body of POST /v1/messages, Anthropic's API, in the names of /v1/chat/completions.
//
//     system, messages -> messages      stop_sequences -> stop     input_schema -> parameters
//     tool_use, tool_result -> tool_calls, role "tool"             thinking -> reasoning_content
//     thinking.type -> chat_template_kwargs.enable_thinking
//     output_config -> reasoning_effort, response_format
//
// A line of the system text that names how a client is billed changes with each of its calls, and
// is dropped: else no prefix of the prompt would be found in the cache. In results of tools it is
// data, and stays. Tools that run on the server of that API are skipped; so are cache_control and
// fields that change no answer. Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

/// Errors: 400 naming the field as the body has it.
[[nodiscard]] ApiResult<nlohmann::ordered_json> chat_body_of_messages(
    const nlohmann::ordered_json& body);
/// Without the line that begins with "x-anthropic-billing-header:".
[[nodiscard]] std::string without_billing_line(const std::string& text);

}  // namespace paceline::serve

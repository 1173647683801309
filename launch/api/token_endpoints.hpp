// POST /tokenize, /detokenize and /apply-template, in the dialects of llama.cpp and vLLM; POST
// /v1/chat/completions/input_tokens, /v1/responses/input_tokens and /v1/messages/count_tokens.
//
//     {"content", "add_special", "parse_special", "with_pieces"}     llama.cpp
//     {"prompt" | "messages", "add_special_tokens", "return_token_strs"}   vLLM
//
// Slow for long texts; any thread. Pure but for the clock of templates.
#pragma once

#include <string_view>

#include "launch/api/reply.hpp"
#include "launch/api/served_model.hpp"

namespace paceline::serve {

[[nodiscard]] Reply tokenize_reply(std::string_view body, const ServedModel& model);
[[nodiscard]] Reply detokenize_reply(std::string_view body, const ServedModel& model);
/// How many tokens the prompt of a request would have: of POST /v1/chat/completions, of
/// /v1/responses and of /v1/messages.
[[nodiscard]] Reply chat_tokens_reply(std::string_view body, const ServedModel& model);
[[nodiscard]] Reply responses_tokens_reply(std::string_view body, const ServedModel& model);
[[nodiscard]] Reply messages_tokens_reply(std::string_view body, const ServedModel& model);
[[nodiscard]] Reply apply_template_reply(std::string_view body, const ServedModel& model);

}  // namespace paceline::serve

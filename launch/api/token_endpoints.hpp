// POST /tokenize, /detokenize and /apply-template, in the dialects of llama.cpp and vLLM.
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
[[nodiscard]] Reply apply_template_reply(std::string_view body, const ServedModel& model);

}  // namespace paceline::serve

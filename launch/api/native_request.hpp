// The body of POST /completion, llama.cpp's own API, in the names that the other endpoints have.
//
//     n_predict -> max_tokens (-1: until the context is full)
//     repeat_penalty -> repetition_penalty
//     seed -1 -> absent       logit_bias [[id or text, bias or false], ...] -> {id: bias}
//     prompt: what a completion takes, ["text", 1, 2] as one prompt, {"prompt_string": "text"}
//
// Pure.
#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"
#include "launch/api/served_model.hpp"

namespace paceline::serve {

/// Errors: 400 naming the field as the body has it.
[[nodiscard]] ApiResult<nlohmann::ordered_json> with_common_names(
    const nlohmann::ordered_json& body, const ServedModel& model);

struct NativePrompts {
    std::vector<std::vector<TokenId>> tokens = {};
    bool list = false;  // of prompts: so is the response
};

/// Errors: 400 naming the prompt.
[[nodiscard]] ApiResult<NativePrompts> native_prompts(const nlohmann::ordered_json& body,
                                                      const ServedModel& model);

}  // namespace paceline::serve

// CompletionPrompts: the prompts of POST /v1/completions: texts, lists of token ids, and lists of
// both.
//
//     "text"    [1, 2, 3]    ["text", "text"]    [[1, 2], [3]]    ["text", [1, 2]]
//
// Pure.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ipc/base/ids.hpp"
#include "launch/api/api_error.hpp"

namespace paceline::serve {

using CompletionPrompt = std::variant<std::string, std::vector<TokenId>>;

/// What a completion has without max_tokens, as in OpenAI's API.
inline constexpr std::int32_t kCompletionTokensDefault = 16;

/// At least one, at most kChoicesMax; ids are of the vocabulary. Errors: 400 naming the prompt.
[[nodiscard]] ApiResult<std::vector<CompletionPrompt>> completion_prompts(
    const nlohmann::ordered_json& body, int vocab_size);

/// `ids` as tokens of the vocabulary. Errors: 400 naming `place`.
[[nodiscard]] ApiResult<std::vector<TokenId>> token_ids(const nlohmann::ordered_json& ids,
                                                        const std::string& place,
                                                        int vocab_size);

}  // namespace paceline::serve

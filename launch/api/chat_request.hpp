// ChatRequest: the conversation of POST /v1/chat/completions, in the form that chat templates take.
//
// Contents are texts, or lists of text parts, which are joined. The role `developer` is `system`,
// `function` is `tool`. `reasoning` is another word for `reasoning_content`.
// Control tokens in the contents stay text: that is the template's part (chat_template.hpp).
// Pure.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"
#include "launch/api/tools/tool_request.hpp"

namespace paceline::serve {

inline constexpr std::size_t kMessagesMax = 4096;
inline constexpr std::size_t kTemplateArgumentsMax = 64;

struct ChatRequest {
    std::string messages = {};  // a JSON list, for ChatTemplate::render_json()
    // chat_template_kwargs and reasoning_effort: a JSON object, or empty.
    std::string arguments = {};
    ToolRequest tools = {};
};

/// Errors: 400 naming the message ("messages[2].content").
[[nodiscard]] ApiResult<ChatRequest> chat_request(const nlohmann::ordered_json& body);

}  // namespace paceline::serve

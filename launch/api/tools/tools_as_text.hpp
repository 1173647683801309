// tools_as_text(): a conversation with tools for a chat template that knows none.
//
//     system                 + a description of the tools and of the form of calls
//     assistant.tool_calls   its content: the calls as JSON
//     tool                   user: "Result of NAME: ..."
//
// Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace paceline::serve {

/// `messages`: as chat_request() makes them. `tools`: the list in JSON; empty: none are described.
void tools_as_text(nlohmann::ordered_json& messages, const std::string& tools);

}  // namespace paceline::serve

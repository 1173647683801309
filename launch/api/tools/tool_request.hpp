// ToolRequest: `tools`, `tool_choice` and `parallel_tool_calls` of a chat.
//
//     "tools": [{"type": "function", "function": {"name", "description", "parameters"}}, ...]
//     "tool_choice": "none" | "auto" | "required" | {"type": "function", "function": {"name"}}
//                    | {"type": "allowed_tools", "allowed_tools": {"mode", "tools": [...]}}
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

inline constexpr std::size_t kToolsMax = 512;
inline constexpr std::size_t kFunctionNameBytesMax = 128;

struct ToolFunction {
    std::string name = {};
    std::string parameters = {};  // a JSON schema; empty: any object
};

enum class ToolChoice : std::uint8_t {
    Auto,      // text, calls, or both
    Required,  // at least one call, and nothing else
};

struct ToolRequest {
    std::string list = {};                     // of all tools, for the template; empty: none
    std::vector<ToolFunction> functions = {};  // that may be called
    ToolChoice choice = ToolChoice::Auto;
    bool parallel = true;  // more than one call

    [[nodiscard]] bool none() const { return functions.empty(); }
};

/// With "none" there are no tools. Errors: 400 naming the field.
[[nodiscard]] ApiResult<ToolRequest> tool_request(const nlohmann::ordered_json& body);

}  // namespace paceline::serve

// parameter_texts(): which parameters of a function are strings by its schema, for formats that
// write values without quotes (tool_format.hpp). Pure.
#pragma once

#include "launch/api/tools/tool_request.hpp"
#include "launch/tool_calls/tool_format.hpp"

namespace paceline::serve {

[[nodiscard]] ParameterTexts parameter_texts(const ToolFunction& function);

}  // namespace paceline::serve

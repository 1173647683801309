// messages_error(): an error in the form of Anthropic's API.
//
//     {"type": "error", "error": {"type": "invalid_request_error", "message": "..."}}
//
// Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

[[nodiscard]] nlohmann::ordered_json messages_error(const ApiError& error);

}  // namespace paceline::serve

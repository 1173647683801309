// unsupported_field(): the first field of a request that would change its answer and that this
// server does not implement.
//
// A value that asks for nothing (null, false, an empty list, {"type": "text"}) is accepted.
// Pure.
#pragma once

#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

/// 501 naming the field; nothing: there is none.
[[nodiscard]] std::optional<ApiError> unsupported_field(const nlohmann::ordered_json& body);

}  // namespace paceline::serve

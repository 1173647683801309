// read_json(): the body of a request as JSON, within limits.
//
// Refused are: a key that an object has twice (two readers of one body must not see two requests),
// more levels than kJsonDepthMax, more values than kJsonValuesMax, more keys than kJsonKeysMax,
// invalid UTF-8, numbers that a double cannot hold. The parser does not recurse; memory is bounded
// by the length of the text. Members keep their order: that of a schema's properties and of a
// tool's description reaches the model.
// Texts of JSON inside of a body are read by it, too: what is deeper would end the process when it
// is written or copied.
// Pure.
#pragma once

#include <cstddef>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

inline constexpr std::size_t kJsonDepthMax = 32;
inline constexpr std::size_t kJsonValuesMax = 1U << 21;
/// Of one object: its members are found one after the other.
inline constexpr std::size_t kJsonKeysMax = 4096;

/// Errors: 400; the message is fixed but for a position and the name of a key.
[[nodiscard]] ApiResult<nlohmann::ordered_json> read_json(std::string_view text);
/// The same, and an object.
[[nodiscard]] ApiResult<nlohmann::ordered_json> read_json_object(std::string_view text);

}  // namespace paceline::serve

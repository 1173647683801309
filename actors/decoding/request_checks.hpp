// What a Request and a BeginPayload are checked for alike. Used by their validate().
#pragma once

#include <string>

#include "actors/decoding/request.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

/// Errors, here and below: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Error request_out_of_range(const std::string& field,
                                         const std::string& value,
                                         const std::string& range);
/// That the text is not empty and leaves room for an answer.
[[nodiscard]] Status check_room(const Request& request, std::int32_t kv_slots);
/// Limits, tokens and sampling of an answer of which `replayed` tokens are there already.
[[nodiscard]] Status check_answer(const Request& request, std::int32_t replayed, int vocab_size);

}  // namespace paceline

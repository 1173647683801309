// Reply: a whole response, before it is written. A plain value.
#pragma once

#include <optional>
#include <string>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

inline constexpr const char* kJsonType = "application/json";

struct Reply {
    int status = 200;
    std::string content_type = kJsonType;
    std::string body = {};
    int retry_after_s = 0;               // 0: no such header
    std::string allow = {};              // of 405
    bool closes = false;                 // the connection ends with it
    std::string fields = {};             // further lines of the head, each with its line break
    std::optional<ApiError> error = {};  // that the body tells of
};

[[nodiscard]] Reply reply_of(const ApiError& error);
/// Its error, if it tells of one, in the form of the API that was asked.
[[nodiscard]] Reply in_form(Reply reply, ErrorForm form);

}  // namespace paceline::serve

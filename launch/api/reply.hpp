// Reply: a whole response, before it is written. A plain value.
#pragma once

#include <string>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

inline constexpr const char* kJsonType = "application/json";

struct Reply {
    int status = 200;
    std::string content_type = kJsonType;
    std::string body = {};
    int retry_after_s = 0;    // 0: no such header
    std::string allow = {};   // of 405
    bool closes = false;      // the connection ends with it
    std::string fields = {};  // further lines of the head, each with its line break
};

[[nodiscard]] Reply reply_of(const ApiError& error);

}  // namespace paceline::serve

#include "launch/api/reply.hpp"

#include <nlohmann/json.hpp>

#include "launch/base/json_text.hpp"

namespace paceline::serve {

Reply reply_of(const ApiError& error) {
    return {.status = error.status,
            .body = json_text(error_json(error)) + "\n",
            .retry_after_s = error.retry_after_s,
            .allow = error.allow,
            .closes = error.ends};
}

}  // namespace paceline::serve

#include "launch/api/messages/messages_error.hpp"

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

/// Where Anthropic's name is another one than OpenAI's.
const char* type_of(int status) {
    switch (status) {
        case 413:
            return "request_too_large";
        case 500:
            return "api_error";
        case 501:
            return "invalid_request_error";
        case 503:
            return "overloaded_error";
        default:
            return error_type(status);
    }
}

}  // namespace

nlohmann::ordered_json messages_error(const ApiError& error) {
    return {{"type", "error"},
            {"error", {{"type", type_of(error.status)}, {"message", error.message}}}};
}

}  // namespace paceline::serve

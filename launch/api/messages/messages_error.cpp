#include "launch/api/messages/messages_error.hpp"

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

const char* type_of(int status) {
    switch (status) {
        case 401:
            return "authentication_error";
        case 403:
            return "permission_error";
        case 404:
            return "not_found_error";
        case 413:
            return "request_too_large";
        case 429:
            return "rate_limit_error";
        case 503:
            return "overloaded_error";
        case 500:
            return "api_error";
        default:
            return "invalid_request_error";
    }
}

}  // namespace

nlohmann::ordered_json messages_error(const ApiError& error) {
    return {{"type", "error"},
            {"error", {{"type", type_of(error.status)}, {"message", error.message}}}};
}

}  // namespace paceline::serve

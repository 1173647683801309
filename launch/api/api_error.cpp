#include "launch/api/api_error.hpp"

#include <nlohmann/json.hpp>

namespace paceline::serve {

ApiError bad_field(const std::string& param, const std::string& what) {
    return {.status = 400, .message = param + ": " + what, .param = param};
}

ApiError not_implemented(const std::string& param, const std::string& what) {
    return {.status = 501, .message = what, .param = param, .code = "not_implemented"};
}

const char* error_type(int status) {
    switch (status) {
        case 401:
            return "authentication_error";
        case 403:
            return "permission_error";
        case 404:
            return "not_found_error";
        case 429:
            return "rate_limit_error";
        case 500:
            return "server_error";
        case 501:
            return "not_supported_error";
        case 503:
            return "unavailable_error";
        default:
            return "invalid_request_error";
    }
}

nlohmann::ordered_json error_json(const ApiError& error) {
    const auto or_null = [](const std::string& text) {
        return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
    };
    return {{"error",
             {{"message", error.message},
              {"type", error_type(error.status)},
              {"param", or_null(error.param)},
              {"code", or_null(error.code)}}}};
}

}  // namespace paceline::serve

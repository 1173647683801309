// ApiError: why a request is refused, and its answer in the form of OpenAI's API.
//
//     {"error": {"message": "...", "type": "invalid_request_error",
//                "param": "top_p", "code": null}}
//
// Messages name the field and the allowed range. They quote of a request at most its own short
// values, made visible; never a prompt or a key.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include <nlohmann/json_fwd.hpp>

#include "ipc/base/check.hpp"

namespace paceline::serve {

struct ApiError {
    int status = 400;  // of HTTP
    std::string message = {};
    std::string param = {};  // the field; empty: null
    std::string code = {};   // for programs; empty: null
    int retry_after_s = 0;   // 0: no such header
    std::string allow = {};  // of 405: the methods that the path has
    bool ends = false;       // the connection cannot be used any further
};

/// How the body of an error is written.
enum class ErrorForm : std::uint8_t { OpenAi, Messages };

/// 400 for a field of the request.
[[nodiscard]] ApiError bad_field(const std::string& param, const std::string& what);
/// 501 for a field that this server does not implement.
[[nodiscard]] ApiError not_implemented(const std::string& param, const std::string& what);

[[nodiscard]] const char* error_type(int status);
[[nodiscard]] nlohmann::ordered_json error_json(const ApiError& error);

/// A value, or why there is none.
template <class T>
class [[nodiscard]] ApiResult {
public:
    // NOLINTNEXTLINE(google-explicit-constructor): `return value;` must read naturally
    ApiResult(T value) : state_{std::in_place_index<0>, std::move(value)} {}
    // NOLINTNEXTLINE(google-explicit-constructor): `return ApiError{...};` must read naturally
    ApiResult(ApiError error) : state_{std::in_place_index<1>, std::move(error)} {}

    explicit operator bool() const { return state_.index() == 0; }
    [[nodiscard]] T& value() {
        PACE_CHECK(state_.index() == 0, "value() of a refused request");
        return std::get<0>(state_);
    }
    [[nodiscard]] const ApiError& error() const {
        PACE_CHECK(state_.index() == 1, "error() of an accepted request");
        return std::get<1>(state_);
    }

private:
    std::variant<T, ApiError> state_;
};

}  // namespace paceline::serve

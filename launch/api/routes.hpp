// find_route(): which endpoint a method and a path mean.
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/api/api_error.hpp"

namespace paceline::serve {

enum class Endpoint : std::uint8_t {
    Chat,
    Completions,
    Models,
    Model,
    Health,
    Metrics,
    Version,
    Props,
    Tokenize,
    Detokenize,
    ApplyTemplate,
    Stream,
    Native,
    Slots,
    TokenizerInfo,
    Page,
    OpenApi,
    Responses,
    Messages,
    ChatTokens,
    ResponsesTokens,
    MessagesTokens,
};

struct Route {
    Endpoint endpoint = Endpoint::Health;
    std::string id = {};     // of Model, Stream
    std::string query = {};  // behind the question mark

    [[nodiscard]] bool takes_body() const {
        switch (endpoint) {
            case Endpoint::Tokenize:
            case Endpoint::Detokenize:
            case Endpoint::ApplyTemplate:
            case Endpoint::ChatTokens:
            case Endpoint::ResponsesTokens:
            case Endpoint::MessagesTokens:
                return true;
            default:
                return is_answer();
        }
    }
    /// Its answer is decoded.
    [[nodiscard]] bool is_answer() const {
        return endpoint == Endpoint::Chat || endpoint == Endpoint::Completions ||
               endpoint == Endpoint::Native || endpoint == Endpoint::Responses ||
               endpoint == Endpoint::Messages;
    }
    /// Answered without a key: what the page asks for needs one.
    [[nodiscard]] bool is_open() const { return is_health() || endpoint == Endpoint::Page; }
    /// Also without a key, and while the model loads.
    [[nodiscard]] bool is_health() const { return endpoint == Endpoint::Health; }
};

/// `target`: the path, with a query. HEAD is GET, but not of a stream.
/// Errors: 404; 405 with the methods of the path; 501 for endpoints of other servers.
[[nodiscard]] ApiResult<Route> find_route(std::string_view method, std::string_view target);

/// Of the errors that an answer to `target` may have; also where there is no such path.
[[nodiscard]] ErrorForm error_form_of(std::string_view target);

/// The value of `name` in "a=1&b=2", as it is written; empty for "name" alone; nothing: it is not
/// there.
[[nodiscard]] std::optional<std::string_view> query_value(std::string_view query,
                                                          std::string_view name);

}  // namespace paceline::serve

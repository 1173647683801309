// find_route(): which endpoint a method and a path mean.
//
// Pure.
#pragma once

#include <cstdint>
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
    Page,
    OpenApi,
};

struct Route {
    Endpoint endpoint = Endpoint::Health;
    std::string id = {};  // of Model

    [[nodiscard]] bool takes_body() const {
        return endpoint == Endpoint::Chat || endpoint == Endpoint::Completions ||
               endpoint == Endpoint::Tokenize || endpoint == Endpoint::Detokenize ||
               endpoint == Endpoint::ApplyTemplate;
    }
    /// Answered without a key: what the page asks for needs one.
    [[nodiscard]] bool is_open() const { return is_health() || endpoint == Endpoint::Page; }
    /// Also without a key, and while the model loads.
    [[nodiscard]] bool is_health() const { return endpoint == Endpoint::Health; }
};

/// `target`: the path, with a query that is ignored. HEAD is GET.
/// Errors: 404; 405 with the methods of the path; 501 for endpoints of other servers.
[[nodiscard]] ApiResult<Route> find_route(std::string_view method, std::string_view target);

}  // namespace paceline::serve

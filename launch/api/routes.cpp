#include "launch/api/routes.hpp"

#include <algorithm>
#include <charconv>

#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

constexpr const char* kGet = "GET, HEAD";
constexpr const char* kGetAlone = "GET";
constexpr const char* kPost = "POST";
constexpr std::size_t kIdBytesMax = 256;

struct Known {
    std::string_view path;  // without /v1
    const char* methods;
    Endpoint endpoint;
};

constexpr Known kKnown[] = {
    {"/chat/completions", kPost, Endpoint::Chat},
    {"/completions", kPost, Endpoint::Completions},
    {"/completion", kPost, Endpoint::Native},
    {"/responses", kPost, Endpoint::Responses},
    {"/messages", kPost, Endpoint::Messages},
    {"/chat/completions/input_tokens", kPost, Endpoint::ChatTokens},
    {"/responses/input_tokens", kPost, Endpoint::ResponsesTokens},
    {"/messages/count_tokens", kPost, Endpoint::MessagesTokens},
    {"/models", kGet, Endpoint::Models},
    {"/health", kGet, Endpoint::Health},
    {"/metrics", kGet, Endpoint::Metrics},
    {"/version", kGet, Endpoint::Version},
    {"/props", kGet, Endpoint::Props},
    {"/slots", kGet, Endpoint::Slots},
    {"/tokenizer_info", kGet, Endpoint::TokenizerInfo},
    {"/tokenize", kPost, Endpoint::Tokenize},
    {"/detokenize", kPost, Endpoint::Detokenize},
    {"/apply-template", kPost, Endpoint::ApplyTemplate},
    {"/", kGet, Endpoint::Page},
    {"/openapi.json", kGet, Endpoint::OpenApi},
};

/// An ID follows.
constexpr Known kWithId[] = {
    {"/models/", kGet, Endpoint::Model},
    {"/streams/", kGetAlone, Endpoint::Stream},
};

constexpr std::string_view kOfOthers[] = {"/infill",    "/embeddings", "/embedding", "/rerank",
                                          "/reranking", "/score",      "/pooling",   "/classify"};

/// "%2F" becomes "/"; nothing: a % without two digits.
std::optional<std::string> percent_decoded(std::string_view text) {
    std::string decoded;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded += text[i];
            continue;
        }
        unsigned value = 0;
        const char* begin = text.data() + i + 1;
        if (i + 2 >= text.size()) return {};
        const auto parsed = std::from_chars(begin, begin + 2, value, 16);
        if (parsed.ec != std::errc{} || parsed.ptr != begin + 2) return {};
        decoded += static_cast<char>(value);
        i += 2;
    }
    return decoded;
}

bool allows(std::string_view methods, std::string_view method) {
    return methods == method || (methods == kGet && (method == "GET" || method == "HEAD"));
}

ApiError wrong_method(std::string_view method, const char* methods) {
    return {.status = 405,
            .message = "this path has " + std::string{methods} + ", not '" + visible(method) + "'",
            .code = "method_not_allowed",
            .allow = methods};
}

}  // namespace

std::optional<std::string_view> query_value(std::string_view query, std::string_view name) {
    while (!query.empty()) {
        const std::string_view pair = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(pair.size() + 1, query.size()));
        const std::size_t end = std::min(pair.find('='), pair.size());
        if (pair.substr(0, end) == name) return pair.substr(std::min(end + 1, pair.size()));
    }
    return {};
}

ErrorForm error_form_of(std::string_view target) {
    const bool messages = target.starts_with("/v1/messages") || target.starts_with("/messages");
    return messages ? ErrorForm::Messages : ErrorForm::OpenAi;
}

ApiResult<Route> find_route(std::string_view method, std::string_view target) {
    const std::string_view whole = target.substr(0, target.find_first_of("?#"));
    const std::string_view rest = target.substr(whole.size(), target.find('#') - whole.size());
    const std::string query{rest.substr(std::min<std::size_t>(1, rest.size()))};
    // "/v1/" alone is no alias of the page: a client that probes its base URL expects JSON.
    constexpr std::string_view kPrefix = "/v1/";
    const bool prefixed = whole.size() > kPrefix.size() && whole.starts_with(kPrefix);
    const std::string_view path = prefixed ? whole.substr(kPrefix.size() - 1) : whole;
    for (const Known& known : kKnown) {
        if (path != known.path) continue;
        if (!allows(known.methods, method)) return wrong_method(method, known.methods);
        return Route{known.endpoint, {}, query};
    }
    for (const Known& known : kWithId) {
        if (!path.starts_with(known.path) || path.size() == known.path.size()) continue;
        if (!allows(known.methods, method)) return wrong_method(method, known.methods);
        std::optional<std::string> id = percent_decoded(path.substr(known.path.size()));
        if (id && id->size() <= kIdBytesMax) return Route{known.endpoint, *std::move(id), query};
    }
    for (const std::string_view other : kOfOthers) {
        if (path == other)
            return not_implemented({}, std::string{whole} +
                                           ": this server decodes text, it does "
                                           "not implement this endpoint");
    }
    return ApiError{
        .status = 404, .message = "there is no '" + visible(whole) + "' here", .code = "not_found"};
}

}  // namespace paceline::serve

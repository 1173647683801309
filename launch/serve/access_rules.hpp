// AccessRules: who may ask the server what: API keys, and what protects a server without keys from
// web pages that a browser on this machine shows.
//
//     with keys       every request but /health names one of them
//     without         the server listens on a loopback address; the Host header must name this
//                     machine, so that a page of another site cannot reach it by a name of its own
//                     (DNS rebinding)
//     a page's Origin is refused unless it is the server's own or --cors-origin allows it
//
// Keys are kept as SHA-256 digests and compared in constant time, all of them.
// Immutable; any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/api/api_error.hpp"

namespace paceline::serve {

/// The fields of a request's head that the rules read; empty: absent.
struct RequestHead {
    std::string_view method = {};
    std::string_view target = {};
    std::string_view host = {};
    std::string_view origin = {};
    std::string_view authorization = {};
    std::string_view x_api_key = {};
    std::string_view content_type = {};
};

/// In place of a host: only this user's programs reach it, and no browser.
inline constexpr const char* kUnixSocket = "unix";

/// Empty: none.
struct KeySources {
    std::string file = {};  // a key a line; # begins a comment
    std::string key = {};   // of a variable
};

class AccessRules {
public:
    /// `host`: what the server is bound to, or kUnixSocket. Errors: BadArgument naming the option.
    [[nodiscard]] static Result<AccessRules> make(const std::string& host,
                                                  const KeySources& keys,
                                                  const std::vector<std::string>& origins);

    /// 400 or 403 for Host and Origin.
    [[nodiscard]] std::optional<ApiError> check_place(const RequestHead& head) const;
    /// 401; 400 if Authorization and X-Api-Key name different keys, whether one is valid or not.
    [[nodiscard]] std::optional<ApiError> check_key(const RequestHead& head) const;
    /// The digest of the key that a request names: two requests with the same one have one owner.
    /// Empty without keys. Precondition: check_key() found nothing.
    [[nodiscard]] std::string owner_of(const RequestHead& head) const;
    /// 415 if a body is not announced as JSON: browsers ask before they send that.
    [[nodiscard]] static std::optional<ApiError> check_content_type(const RequestHead& head);
    /// Of Access-Control-Allow-Origin; empty: no such header.
    [[nodiscard]] std::string allowed_origin(const RequestHead& head) const;
    [[nodiscard]] bool has_keys() const { return !digests_.empty(); }

private:
    using Digest = std::array<unsigned char, 32>;

    std::string host_;
    std::vector<Digest> digests_;
    std::vector<std::string> origins_;
};

/// "localhost", 127.0.0.0/8 or ::1, with or without brackets.
[[nodiscard]] bool is_loopback_name(std::string_view host);

}  // namespace paceline::serve

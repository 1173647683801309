#include "launch/serve/access_rules.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "launch/base/text_input.hpp"

namespace paceline::serve {
namespace {

constexpr std::size_t kKeyFileBytesMax = 65'536;
constexpr std::size_t kKeyBytesMin = 8;
constexpr std::size_t kKeyBytesMax = 512;

std::array<unsigned char, 32> digest_of(std::string_view key) {
    static_assert(SHA256_DIGEST_LENGTH == 32);
    std::array<unsigned char, 32> digest{};
    const std::vector<unsigned char> bytes{key.begin(), key.end()};
    SHA256(bytes.data(), bytes.size(), digest.data());
    return digest;
}

std::string lower(std::string_view text) {
    std::string low{text};
    for (char& c : low) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return low;
}

std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t\r");
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

/// Without the port, and without the brackets of an IPv6 address.
std::string_view host_part(std::string_view host) {
    if (host.starts_with('[')) {
        const std::size_t end = host.find(']');
        return end == host.npos ? std::string_view{} : host.substr(1, end - 1);
    }
    return host.substr(0, host.find(':'));
}

/// The key of Authorization; nothing: it is absent or of another scheme, such as a proxy's Basic.
std::optional<std::string_view> bearer_key(const RequestHead& head) {
    constexpr std::string_view kBearer = "bearer ";
    if (lower(head.authorization.substr(0, kBearer.size())) != kBearer) return {};
    return trimmed(head.authorization.substr(kBearer.size()));
}

/// What a request names as its key; empty: nothing.
std::string_view named_key(const RequestHead& head) {
    return bearer_key(head).value_or(head.x_api_key);
}

Status check_key_text(std::string_view key) {
    const bool printable =
        std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7f'; });
    if (printable && key.size() >= kKeyBytesMin && key.size() <= kKeyBytesMax) return {};
    return Error{Errc::BadArgument,
                 fmt::format("a key has {} to {} printable ASCII characters, without spaces",
                             kKeyBytesMin, kKeyBytesMax)};
}

Result<std::vector<std::string>> read_keys(const std::string& path) {
    const auto bad = [&](const std::string& what) {
        return Error{Errc::BadArgument, "--api-key-file " + path + ": " + what};
    };
    const Result<std::string> text = read_file(path, kKeyFileBytesMax);
    if (!text) return bad(text.error().what);
    std::vector<std::string> keys;
    for (std::string_view rest = text.value(); !rest.empty();) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = trimmed(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (line.empty() || line.starts_with('#')) continue;
        if (Status s = check_key_text(line); !s) return bad(s.error().what);
        keys.emplace_back(line);
    }
    if (keys.empty()) return bad("holds no key");
    return keys;
}

}  // namespace

bool is_loopback_name(std::string_view host) {
    const std::string name = lower(host.starts_with('[') ? host_part(host) : host);
    if (name == "localhost" || name == "::1") return true;
    return name.starts_with("127.") && name.find_first_not_of("0123456789.") == name.npos;
}

Result<AccessRules> AccessRules::make(const std::string& host,
                                      const KeySources& sources,
                                      const std::vector<std::string>& origins) {
    AccessRules rules;
    rules.host_ = lower(host);
    if (!sources.key.empty()) {
        if (Status s = check_key_text(sources.key); !s)
            return Error{Errc::BadArgument, "PACELINE_API_KEY: " + s.error().what};
        rules.digests_.push_back(digest_of(sources.key));
    }
    if (!sources.file.empty()) {
        Result<std::vector<std::string>> keys = read_keys(sources.file);
        if (!keys) return keys.error();
        for (const std::string& key : keys.value()) rules.digests_.push_back(digest_of(key));
    }
    const bool local = host == kUnixSocket || is_loopback_name(host);
    if (!local && !rules.has_keys())
        return Error{
            Errc::BadArgument,
            "--host " + host + " can be reached from other machines; give --api-key-file too"};
    for (const std::string& origin : origins) {
        if (origin == "*" && (!local || rules.has_keys()))
            return Error{Errc::BadArgument,
                         "--cors-origin * is only for a loopback address without keys"};
        rules.origins_.push_back(lower(origin));
    }
    return rules;
}

std::optional<ApiError> AccessRules::check_place(const RequestHead& head) const {
    if (head.host.empty() && !has_keys())
        return ApiError{
            .status = 400, .message = "the Host header is missing", .code = "host_missing"};
    const std::string host = lower(host_part(head.host));
    if (!has_keys() && host_ != kUnixSocket && !is_loopback_name(host) && host != host_)
        return ApiError{.status = 403,
                        .message = "the Host header names another machine",
                        .code = "host_not_allowed"};
    if (head.origin.empty() || !allowed_origin(head).empty()) return {};
    // The page's own; with keys, or on a Unix socket, also behind a proxy that speaks TLS.
    const std::string origin = lower(head.origin);
    const std::string place = lower(head.host);
    const bool proxied = has_keys() || host_ == kUnixSocket;
    if (origin == "http://" + place || (proxied && origin == "https://" + place)) return {};
    return ApiError{.status = 403,
                    .message = "the Origin is not allowed; the server's option is --cors-origin",
                    .code = "origin_not_allowed"};
}

std::optional<ApiError> AccessRules::check_key(const RequestHead& head) const {
    if (!has_keys()) return {};
    const std::optional<std::string_view> bearer = bearer_key(head);
    if (bearer && !head.x_api_key.empty() && *bearer != head.x_api_key)
        return ApiError{.status = 400,
                        .message = "Authorization and X-Api-Key name different keys; send one",
                        .code = "different_api_keys"};
    const Digest digest = digest_of(named_key(head));
    bool known = false;
    for (const Digest& each : digests_)
        known = (CRYPTO_memcmp(each.data(), digest.data(), digest.size()) == 0) || known;
    if (known) return {};
    return ApiError{.status = 401,
                    .message = "a valid API key is needed: Authorization: Bearer KEY",
                    .code = "invalid_api_key"};
}

std::string AccessRules::owner_of(const RequestHead& head) const {
    if (!has_keys()) return {};
    const Digest digest = digest_of(named_key(head));
    return {digest.begin(), digest.end()};
}

std::optional<ApiError> AccessRules::check_content_type(const RequestHead& head) {
    const std::string_view type = head.content_type.substr(0, head.content_type.find(';'));
    if (lower(trimmed(type)) == "application/json") return {};
    return ApiError{.status = 415,
                    .message = "the body must be sent as Content-Type: application/json",
                    .code = "unsupported_media_type"};
}

std::string AccessRules::allowed_origin(const RequestHead& head) const {
    const std::string origin = lower(head.origin);
    if (origin.empty()) return {};
    for (const std::string& allowed : origins_) {
        if (allowed == "*") return "*";
        if (allowed == origin) return std::string{head.origin};
    }
    return {};
}

}  // namespace paceline::serve

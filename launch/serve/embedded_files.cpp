#include "launch/serve/embedded_files.hpp"

#include <array>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <string_view>

#include "ipc/base/check.hpp"
#include "launch/embedded_files.inc"

namespace paceline::serve {
namespace {

/// 'sha256-...', as a Content-Security-Policy names a script or style.
std::string digest_source(std::string_view text) {
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
    const std::string bytes{text};
    SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
    std::array<unsigned char, 4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1> encoded{};
    const int length = EVP_EncodeBlock(encoded.data(), digest.data(), SHA256_DIGEST_LENGTH);
    return "'sha256-" + std::string(encoded.begin(), encoded.begin() + length) + "'";
}

/// `text` with `part` in place of its only `mark`.
std::string with(const std::string& text, std::string_view mark, std::string_view part) {
    const std::size_t at = text.find(mark);
    PACE_CHECK(at != text.npos, "the page lacks the place of its style or script");
    return text.substr(0, at) + std::string{part} + text.substr(at + mark.size());
}

Reply made_page() {
    std::string script;
    for (const std::string_view part : {kServerJs, kChatJs, kEngineJs, kControlsJs}) script += part;
    std::string body = with(std::string{kPageHtml}, "/* page.css */", kPageCss);
    body = with(body, "/* the scripts */", script);
    return {.content_type = "text/html; charset=utf-8",
            .body = body,
            .fields = "Content-Security-Policy: default-src 'none'; script-src " +
                      digest_source(script) + "; style-src " + digest_source(kPageCss) +
                      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'; require-trusted-types-for 'script'\r\n"
                      "Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
                      "Cross-Origin-Opener-Policy: same-origin\r\n"
                      "Cross-Origin-Resource-Policy: same-origin\r\n"};
}

}  // namespace

Reply page_reply() {
    static const Reply kPage = made_page();
    return kPage;
}

Reply openapi_reply() {
    return {.body = std::string{kOpenapiJson}};
}

}  // namespace paceline::serve

#include "ipc/base/json_fault.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "ipc/base/utf8.hpp"

namespace paceline {
namespace {

/// The last "\uD8xx" to "\uDFxx" that begins before `byte`; empty: none.
std::string_view last_surrogate(std::string_view text, std::size_t byte) {
    for (std::size_t at = text.rfind("\\u", byte); at != text.npos;
         at = text.rfind("\\u", at - 1)) {
        const std::string_view word = text.substr(at, 6);
        constexpr std::string_view kHalves = "89abcdefABCDEF";
        if (word.size() == 6 && (word[2] == 'd' || word[2] == 'D') &&
            kHalves.find(word[3]) != kHalves.npos)
            return word;
        if (at == 0) break;
    }
    return {};
}

/// "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while parsing
/// value - REASON; last read: '...'": the reason alone, since the rest quotes the text.
std::string_view short_reason(std::string_view reason) {
    reason = reason.substr(0, reason.find("; last read"));
    const std::size_t dash = reason.find(" - ");
    if (dash != reason.npos) return reason.substr(dash + 3);
    const std::size_t bracket = reason.find("] ");
    return bracket == reason.npos ? reason : reason.substr(bracket + 2);
}

}  // namespace

std::string json_fault(std::string_view text, std::size_t byte, std::string_view reason) {
    const std::size_t valid = utf8::valid_prefix(text);
    if (valid < text.size() && valid < byte) {
        return fmt::format("byte {} (0x{:02x}) is not UTF-8", valid + 1,
                           static_cast<unsigned char>(text[valid]));
    }
    if (byte == 0) return std::string{short_reason(reason)};
    const std::string_view rest = text.substr(std::min(text.size(), byte - 1));
    for (const char* word : {"NaN", "Infinity"}) {
        if (rest.starts_with(word))
            return fmt::format("byte {}: {} is not JSON; write null or a number", byte, word);
    }
    if (reason.find("surrogate") != reason.npos) {
        return fmt::format("byte {}: {} is half of a surrogate pair, which is no character", byte,
                           last_surrogate(text, byte));
    }
    return fmt::format("byte {}: {}", byte, short_reason(reason));
}

}  // namespace paceline

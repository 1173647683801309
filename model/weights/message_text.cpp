#include "model/weights/message_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "ipc/base/utf8.hpp"

namespace paceline {

namespace {

/// Whether a terminal shows `code` as a character, where it stands.
bool is_shown(char32_t code) {
    if (code < 0x20 || (code >= 0x7F && code <= 0x9F)) return false;
    const bool turns = code == 0x061C || code == 0x200E || code == 0x200F ||
                       (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    const bool breaks = code == 0x2028 || code == 0x2029;
    return !turns && !breaks;
}

void append_escaped(std::string& out, std::string_view bytes) {
    constexpr const char* kHex = "0123456789abcdef";
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        out += "\\x";
        out += kHex[byte >> 4U];
        out += kHex[byte & 15U];
    }
}

/// `also` are escaped as well.
std::string shown(std::string_view text, std::size_t bytes_max, std::string_view also) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const utf8::Step step = utf8::first(text.substr(at));
        if (at + step.bytes > bytes_max) return out + "...";
        const std::string_view bytes = text.substr(at, step.bytes);
        const bool plain =
            step.form == utf8::Form::Whole && is_shown(step.code) && also.find(bytes) == also.npos;
        if (plain) {
            out += bytes;
        } else {
            append_escaped(out, bytes);
        }
        at += step.bytes;
    }
    return out;
}

}  // namespace

std::string visible(std::string_view text, std::size_t bytes_max) {
    return shown(text, bytes_max, {});
}

std::string visible_lines(std::string_view text) {
    std::string out;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        out += visible(text.substr(begin, end - begin), kLineShownBytesMax);
        if (end < text.size()) out += '\n';
        begin = end + 1;
    }
    return out;
}

std::string quoted_text(std::string_view text) {
    return '"' + shown(text, kShownBytesMax, "\"\\") + '"';
}

std::string number_text(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.9g", value);
    return text.data();
}

}  // namespace paceline

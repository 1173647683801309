#include "model/weights/message_text.hpp"

#include <array>
#include <cstdio>

namespace paceline {

std::string quoted(std::string_view text) {
    constexpr std::size_t kShown = 80;
    std::string out = "\"";
    for (const char c : text.substr(0, kShown)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7F || c == '"' || c == '\\') {
            constexpr const char* kHex = "0123456789abcdef";
            out += "\\x";
            out += kHex[byte >> 4U];
            out += kHex[byte & 15U];
        } else {
            out += c;
        }
    }
    out += text.size() > kShown ? "...\"" : "\"";
    return out;
}

std::string number_text(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.9g", value);
    return text.data();
}

}  // namespace paceline

#include "launch/base/table_text.hpp"

#include "model/weights/message_text.hpp"

namespace paceline {

std::string markdown_cell(std::string_view text) {
    // Not `_`, which means nothing inside a word and is in many names.
    constexpr std::string_view kMeaning = "\\|`*[<&~";
    std::string out;
    for (const char c : visible(text, kLineShownBytesMax)) {
        if (kMeaning.find(c) != kMeaning.npos) out += '\\';
        out += c;
    }
    return out;
}

std::string csv_field(std::string_view text) {
    std::string out = "\"";
    for (const char c : visible(text, kLineShownBytesMax))
        out += c == '"' ? std::string{"\"\""} : std::string{c};
    return out + "\"";
}

}  // namespace paceline

#include "launch/base/json_text.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace paceline {
namespace {

template <class Json>
std::string dumped(const Json& json, int indent) {
    const std::string text = json.dump(indent, ' ', false, Json::error_handler_t::replace);
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        // Valid UTF-8: U+0080 to U+009F are the byte C2 and the code.
        const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
        if (byte == 0x7F) {
            out += "\\u007f";
        } else if (byte == 0xC2 && next >= 0x80 && next <= 0x9F) {
            out += fmt::format("\\u00{:02x}", next);
            ++i;
        } else {
            out += text[i];
        }
    }
    return out;
}

}  // namespace

std::string json_text(const nlohmann::json& json, int indent) {
    return dumped(json, indent);
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
    return dumped(json, indent);
}

}  // namespace paceline

// JSON for standard output and files, escaped so that strings from files can break neither the JSON
// nor a terminal.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace paceline {

/// As dump(indent), which escapes control characters below 0x20; DEL and those of Latin-1 (U+0080
/// to U+009F) are escaped here, bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string json_text(const nlohmann::json& json, int indent = -1);
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace paceline

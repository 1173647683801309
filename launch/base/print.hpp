// printf into a string, for tables and sentences.
#pragma once

#include <string>

namespace paceline {

/// As printf. What is longer than 255 bytes is cut.
[[nodiscard]] [[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...);

}  // namespace paceline

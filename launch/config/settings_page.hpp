// settings_text(): the keys of all tables of a pipeline's file with type, default and meaning, as
// Markdown: what `paceline run --list-settings` prints, and the lower part of
// docs/configuration.md.
#pragma once

#include <string>

namespace paceline {

[[nodiscard]] std::string settings_text();

}  // namespace paceline

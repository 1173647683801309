// Text from files, options and other processes as a field of a table, so that it can break neither
// the table nor a terminal. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace paceline {

/// A cell of a Markdown table: visible() (message_text.hpp), with a backslash before each character
/// by which Markdown would end the cell, or begin a link, code, emphasis or HTML.
[[nodiscard]] std::string markdown_cell(std::string_view text);

/// A field of a CSV file, in quotes.
[[nodiscard]] std::string csv_field(std::string_view text);

}  // namespace paceline

// Text out of a file, an option or another process made fit for a terminal, a message and a log.
//
// All such text is printed through these functions. Bytes that control a terminal or would disguise
// the text become \xNN: control characters (C0, DEL, C1), those that change the direction of text,
// bytes that are not UTF-8. Text that is too long is cut between two characters and ends in "...".
// Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paceline {

/// Of a value in a sentence or a table.
inline constexpr std::size_t kShownBytesMax = 80;
/// Of a line of a message.
inline constexpr std::size_t kLineShownBytesMax = 2000;

/// `text` on one line; of more than `bytes_max` bytes the first ones.
[[nodiscard]] std::string visible(std::string_view text, std::size_t bytes_max = kShownBytesMax);

/// A message of several lines, each cut at kLineShownBytesMax; newlines stay.
[[nodiscard]] std::string visible_lines(std::string_view text);

/// visible() in quotes, with quotes and backslashes inside escaped.
[[nodiscard]] std::string quoted_text(std::string_view text);

/// The shortest common form of a number: "100000", "1e-05", "nan".
[[nodiscard]] std::string number_text(double value);

}  // namespace paceline

// char_class: which of the classes of unicode_tables.hpp a character belongs to, in one load.
#pragma once

#include <cstdint>

namespace paceline::unicode {

/// The class bits (kLetter, kNumber, ...) of `code`, which is at most U+10FFFF.
/// Any thread; the first call expands the ranges into a table of one byte per code point.
[[nodiscard]] std::uint8_t char_class(char32_t code);

}  // namespace paceline::unicode

// Byte-level text: the alphabet in which a byte-level vocabulary writes its tokens.
//
// Each of the 256 bytes is one printable character: the printable ones of Latin-1 stand for
// themselves, the others, in order, for U+0100 and up (the space is U+0120, "Ġ"). Source: GPT-2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::byte_level {

/// The character that stands for `byte`, in UTF-8.
[[nodiscard]] std::string symbol(std::uint8_t byte);

/// The bytes that `text` stands for, or nothing if a character of it is none of the alphabet.
[[nodiscard]] std::optional<std::string> decode(std::string_view text);

}  // namespace paceline::byte_level

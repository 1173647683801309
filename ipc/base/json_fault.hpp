// json_fault(): why a text is not JSON, for the message to its author.
//
// "byte 12: NaN is not JSON; write null", "byte 3 (0xff) is not UTF-8", "byte 9: \ud83d is half of
// a surrogate pair", or what the parser says.
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paceline {

/// `byte` is where a parser stopped, counted from 1 (0: it does not say), `reason` the text of its
/// exception.
[[nodiscard]] std::string json_fault(std::string_view text,
                                     std::size_t byte,
                                     std::string_view reason);

}  // namespace paceline

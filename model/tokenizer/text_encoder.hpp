// TextEncoder: encodes the text between added tokens; one implementation per kind of vocabulary.
//
// Immutable, any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

/// What stands in front of a text: a vocabulary may begin a text with a space.
enum class Before : std::uint8_t { Nothing, AddedToken, Text };

class TextEncoder {
public:
    TextEncoder() = default;
    TextEncoder(const TextEncoder&) = delete;
    TextEncoder& operator=(const TextEncoder&) = delete;
    virtual ~TextEncoder() = default;

    /// Appends the tokens of `text`, which is valid UTF-8.
    virtual void encode(std::string_view text, Before before, std::vector<TokenId>& out) const = 0;
};

}  // namespace paceline
